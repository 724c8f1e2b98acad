"""A batch for simulated chips with a hang, a crash, a compile error and a bad device: in one process, then with Ondol.

Real: the loader's own stale library, native code that hangs and crashes, compilations, processes. Simulated: the chip.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import showing  # noqa: E402

VERDICTS = {
    "spin": "timeout",
    "wild": "crashed",
    "broken": "error",
    "add": "passed",
    "triple": "passed",
    "reduce": "passed",
    "square": "passed",
}
#: Of each of the four good tasks, for the count of processes.
COPIES = 3
BAD = "1"
#: How long a runner that has said that it gives up may take to do so.
PATIENCE = 3


class Bench:
    """The project in a directory of its own, and who has opened and compiled what there."""

    def __init__(self, place: Path) -> None:
        self.place = place / "project" / "simpler"
        shutil.copytree(HERE, self.place, ignore=shutil.ignore_patterns("__pycache__", "build", "incident.py"))
        shutil.copytree(HERE.parent / "tasks", place / "project" / "tasks", ignore=shutil.ignore_patterns("build"))
        self._programs = place / "bin"
        self._programs.mkdir()
        self._program("ondol", f'exec {sys.executable} -m ondol "$@"')
        self._program("python", f'exec {sys.executable} "$@"')
        temporary = place / "tmp"
        temporary.mkdir()
        self.log = place / "chip.log"
        self.log.touch()
        self.env = {
            "PATH": f"{self._programs}:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(temporary),
            "SIM_BUILD": str(place / "build"),
            "CHIP_LOG": str(self.log),
            "ONDOL_STORE": str(place / "store"),
        }

    def _program(self, name: str, line: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def run(self, name: str, *command: str, **env: str) -> showing.Ended:
        ended = showing.Job(name, command, env={**self.env, **env}, cwd=self.place).end()
        # `timeout` and the shell count signals from 128.
        status = 128 - ended.status if ended.status > 128 else ended.status
        return showing.Ended(name, status, ended.output, ended.seconds)

    def runner(self, *arguments: str, seconds: int = 60, **env: str) -> showing.Ended:
        """The runner before; killed when it does not end, as the CI system would in the end."""
        limit = ["timeout", "--signal=KILL", str(seconds)]
        return self.run("runner", *limit, "python", "runner.py", "batch.ondol.toml", *arguments, **env)

    def noted(self, what: str, since: int = 0) -> list[list[str]]:
        lines = [line.split() for line in self.log.read_text().splitlines()[since:]]
        return [words[1:] for words in lines if words[0] == what]

    def processes(self, since: int) -> int:
        """How many have opened a device."""
        return len({words[-1] for words in self.noted("open", since)})

    def mark(self) -> int:
        return len(self.log.read_text().splitlines())


# -- before --------------------------------------------------------------------------------------------------------


def one_process(story: showing.Story, bench: Bench) -> dict[str, object]:
    facts: dict[str, object] = {}
    stale = bench.runner("--only", "add,triple,reduce,square")
    facts["stale"] = _results(stale)
    story.say("Four good tasks. The loader knows a library by its path, and they all have the same:")
    story.show([re.sub(r"/\S*/", ".../", line.removeprefix("RESULT ")) for line in stale.lines("RESULT")])

    crash = bench.runner("--only", "wild,add,triple")
    facts["crash"] = {"status": crash.status, "results": len(_results(crash))}
    story.say(f"One task of three crashes: the runner is gone (status {crash.status}), and every result with it.")

    hang = bench.runner("--only", "spin,add,triple", "--timeout", "1", seconds=1 + PATIENCE)
    gave_up = bool(hang.lines("TIMEOUT"))
    facts["hang"] = {"gave_up": gave_up, "killed": hang.status == -9, "results": len(_results(hang))}
    story.say(f"One of three hangs in native code. It says so, calls sys.exit, and is there {PATIENCE} s later:")
    story.show([*hang.lines("TIMEOUT"), f"(killed from outside; {len(_results(hang))} results)"])

    device = bench.runner("--only", "add,reduce,square", "--devices", "0,1", CHIP_BAD=BAD)
    facts["bad_device"] = _results(device)
    story.say("One of two devices is bad: what was meant for it fails, and is not tried on the other.")
    story.show([line.removeprefix("RESULT ") for line in device.lines("RESULT", "FAIL")])

    broken = bench.runner()
    facts["broken"] = {"status": broken.status, "results": len(_results(broken))}
    story.say(f"One task does not compile: nothing is run at all ({len(_results(broken))} results).")
    return facts


def process_each(story: showing.Story, bench: Bench) -> dict[str, object]:
    """What the runner was to replace: a process, its imports and an opened device for every task."""
    since = bench.mark()
    jobs = [bench.runner("--only", name) for name in ("add", "triple", "reduce", "square") for _ in range(COPIES)]
    passed, processes = sum(job.good for job in jobs), bench.processes(since)
    story.say(f"A process for each of {len(jobs)} good tasks: {passed} pass, in {processes} processes.")
    return {"tasks": len(jobs), "passed": passed, "processes": processes}


# -- after ---------------------------------------------------------------------------------------------------------


def whole_batch(story: showing.Story, bench: Bench) -> dict[str, object]:
    since = bench.mark()
    ended = bench.run("after.sh", "sh", "after.sh", CHIP_BAD=BAD)
    report = _report(bench, ended)
    junit = bench.place / "results.xml"
    cases = len(ElementTree.parse(junit).findall(".//testcase")) if junit.exists() else 0
    items = {_short(item): item for item in report.get("items", [])}
    story.say("The whole batch, with all of that in it, and device 1 bad:")
    for name, item in items.items():
        story.say(f"    {name:8} {item['verdict']:8} {item['why']}")
    story.show(ended.lines("set aside: ")[:1])
    opened = bench.noted("open", since)
    by_process: dict[str, set[str]] = {}
    for runtime, _device, pid in opened:
        by_process.setdefault(pid, set()).add(runtime)
    compiled_in = {pid for _name, pid in bench.noted("compile")}
    stacks = [line.strip() for line in _dump(items.get("spin")).splitlines() if "chip.py" in line]
    story.say("Where it hung:")
    story.show([line.replace(str(bench.place), "") for line in stacks[:1]])
    return {
        "status": ended.status,
        "verdicts": {name: item["verdict"] for name, item in items.items()},
        "cases_in_junit": cases,
        "quarantined": {entry["device"]: entry["why"] for entry in report.get("quarantined", [])},
        "hang_seen_in": stacks[:1],
        "attempts_of_crash": len(items["wild"]["attempts"]) if items else 0,
        "processes_with_two_runtimes": sum(len(runtimes) > 1 for runtimes in by_process.values()),
        "compiled_on_a_device": len(compiled_in & set(by_process)),
    }


def fault_named(story: showing.Story, bench: Bench) -> dict[str, object]:
    """The runtime keeps its fixed path: the verdict is right all the same, and the cause is named."""
    ended = bench.run("fixed", "ondol", "test", "fixed.ondol.toml", "--devices", "sim:1")
    items = _report(bench, ended).get("items", [])
    story.say("A runtime that still has one path for everything:")
    stale = [kind for item in items for attempt in item["attempts"] for kind, _ in attempt["dirt"]]
    story.show(
        ended.lines("flaky: ", "state-leak") + [re.sub(r"/\S*/", ".../", line) for line in ended.lines("left behind")]
    )
    suspects = [_short(item) for item in items if item["flaky"]]
    return {"verdicts": {_short(item): item["verdict"] for item in items}, "named": stale, "suspects": suspects}


def warm(story: showing.Story, bench: Bench) -> dict[str, object]:
    """The good tasks, several times over."""
    text = (bench.place / "batch.ondol.toml").read_text()
    head, *tasks = text.split("[[task]]\n")
    good = [task for task in tasks if VERDICTS[task.split('"')[1]] == "passed"]
    many = [task.replace('name = "', f'name = "{copy}-') for copy in range(COPIES) for task in good]
    (bench.place / "many.ondol.toml").write_text(head + "".join(f"[[task]]\n{task}" for task in many))
    since = bench.mark()
    # Cold: a task that is not compiled yet must not cost its runtime.
    build = str(bench.place.parent / "cold")
    ended = bench.run("many", "ondol", "test", "many.ondol.toml", "--devices", "sim:1", SIM_BUILD=build)
    verdicts = [item["verdict"] for item in _report(bench, ended).get("items", [])]
    passed, compiled = verdicts.count("passed"), len(bench.noted("compile", since))
    opened, processes = len(bench.noted("open", since)), bench.processes(since)
    story.say(f"{len(verdicts)} good tasks of two runtimes, in turns, nothing compiled before: {passed} pass;")
    story.say(f"a device was opened {opened} times, in {processes} processes.")
    return {
        "tasks": len(verdicts),
        "passed": passed,
        "opened": opened,
        "processes": processes,
        "compiled": compiled,
    }


# -- the whole -----------------------------------------------------------------------------------------------------


def tell(story: showing.Story, place: Path) -> bool:
    if not shutil.which("gcc"):
        raise showing.CannotShow("there is no gcc")
    bench = Bench(place)
    before, after = story.facts["before"], story.facts["after"]
    story.heading("Before: one process for everything, or one for each")
    before["one_process"] = one_process(story, bench)
    before["process_each"] = process_each(story, bench)
    story.heading("After: ondol test")
    after["batch"] = whole_batch(story, bench)
    after["fixed_path"] = fault_named(story, bench)
    after["warm"] = warm(story, bench)
    return happened(before) and gone(after)


def happened(before: dict[str, dict[str, object]]) -> bool:
    one, each = before["one_process"], before["process_each"]
    stale, device = one["stale"], one["bad_device"]
    return (
        "wrong result" in stale.get("triple", "")  # type: ignore[attr-defined]
        and "undefined symbol: build_reduce_graph" in stale.get("reduce", "")  # type: ignore[attr-defined]
        and one["crash"] == {"status": -11, "results": 0}
        and one["hang"] == {"gave_up": True, "killed": True, "results": 0}
        and "507899" in device.get("reduce", "")  # type: ignore[attr-defined]
        and one["broken"] == {"status": 1, "results": 0}
        and each["passed"] == each["processes"] == each["tasks"]
    )


def gone(after: dict[str, dict[str, object]]) -> bool:
    batch, fixed, many = after["batch"], after["fixed_path"], after["warm"]
    return (
        (batch["status"], batch["verdicts"], batch["cases_in_junit"]) == (1, VERDICTS, len(VERDICTS))
        and "507899" in str(batch["quarantined"].get(f"sim{BAD}"))  # type: ignore[attr-defined]
        and bool(batch["hang_seen_in"])
        and batch["attempts_of_crash"] == 2
        and (batch["processes_with_two_runtimes"], batch["compiled_on_a_device"]) == (0, 0)
        and set(fixed["verdicts"].values()) == {"passed"}  # type: ignore[attr-defined]
        # Whichever was compiled last and so came second.
        and (fixed["named"], fixed["suspects"]) in [(["stale library"], ["reduce"]), (["stale library"], ["square"])]
        and many["passed"] == many["tasks"]
        and (many["opened"], many["processes"]) == (2, 2)
        and many["compiled"] >= 4  # type: ignore[operator]
        and many["tasks"] == 4 * COPIES
    )


def _results(ended: showing.Ended) -> dict[str, str]:
    """Task → why it failed, empty for a pass; from the runner's table."""
    rows = [line.split(" ", 4) for line in ended.lines("RESULT")]
    return {row[1]: (row[4] if row[3] == "FAIL" else "") for row in rows}


def _report(bench: Bench, ended: showing.Ended) -> dict[str, list[dict[str, object]]]:
    """The run's journal as one document; nothing if there was no such run."""
    named = ended.lines("journal: ")
    if not named:
        return {}
    journal = named[-1].split("journal: ")[1].split(" (")[0]
    bench.run("report", "ondol", "report", journal, "--json", "report.json")
    return dict(json.loads((bench.place / "report.json").read_text()))


def _short(item: dict[str, object]) -> str:
    return str(item["nodeid"]).rpartition("::")[2]


def _dump(item: dict[str, object] | None) -> str:
    attempts = item["attempts"] if item else []
    return "\n".join(str(attempt.get("dump", "")) for attempt in attempts)  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(showing.main("simpler", __doc__ or "", tell))
