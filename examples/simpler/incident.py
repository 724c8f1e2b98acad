"""A batch for simulated chips with a hang, a crash, a compile error and a bad device: in one process, then with Ondol.

Real: the loader's own stale library, native code that hangs and crashes, compilations, processes. Simulated: the chip.
"""

from __future__ import annotations

import json
import math
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
    "scale": "failed",
    "add": "passed",
    "triple": "passed",
    "reduce": "passed",
    "square": "passed",
}
#: With the pinned PTO-ISA; nothing else is run a second time.
PINNED = {"spin": "timeout", "wild": "crashed", "broken": "error", "scale": "passed"}
GOOD = ("add", "triple", "reduce", "square")
#: Of each of the four good tasks, for the count of processes.
COPIES = 2
BAD = "1"
#: Seconds until the runner gives up, at least, and how long it may take to do so. By then it must have compiled.
LIMIT, PATIENCE = 8, 6
#: Three parts for each of the two runtimes.
BINARIES = 6


class Bench:
    """The project in a directory of its own with some of its cases, and who has opened and compiled what there."""

    def __init__(self, place: Path, name: str, *cases: str, copies: int = 0) -> None:
        self.place = place / name
        shutil.copytree(HERE, self.place, ignore=shutil.ignore_patterns("__pycache__", "build", "incident.py"))
        for case in list(self.place.glob("cases/*/*")):
            if cases and case.name not in cases:
                shutil.rmtree(case)
            for copy in range(copies if case.exists() else 0):
                shutil.copytree(case, case.with_name(f"{case.name}-{copy}"))
        self._programs = place / f"{name}-bin"
        self._programs.mkdir()
        self._program("ondol", f'exec {sys.executable} -m ondol "$@"')
        self._program("python", f'exec {sys.executable} "$@"')
        temporary = place / f"{name}-tmp"
        temporary.mkdir()
        self.log = place / f"{name}.log"
        self.log.touch()
        self.env = {
            "PATH": f"{self._programs}:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(temporary),
            "CHIP_LOG": str(self.log),
            "ONDOL_STORE": str(place / "store"),
            "XDG_STATE_HOME": str(place / "state"),
            # The tasks need no plugin of whoever shows this, and each costs every run its import.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
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
        return self.run("runner", *limit, "python", "tools/ci.py", *arguments, **env)

    def test(self, *arguments: str, **env: str) -> showing.Ended:
        return self.run("ondol", "ondol", "test", "chip.ondol.toml", *arguments, **env)

    def noted(self, what: str) -> list[list[str]]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == what]

    def binaries(self) -> int:
        """How many parts of runtimes were built since the last time that this was asked."""
        count = sum(name in ("host.c", "aicpu.c", "aicore.c") for name, _pid in self.noted("compile"))
        self.log.write_text("")
        return count

    def break_the_runtime(self) -> None:
        """An edit in src/ that every task must notice."""
        source = self.place / "src" / "host.c"
        source.write_text(source.read_text().replace("return entry(data, count);", "return entry(data, count) + 7;"))


# -- before --------------------------------------------------------------------------------------------------------


def one_process(story: showing.Story, place: Path) -> dict[str, object]:
    facts: dict[str, object] = {}
    bench = Bench(place, "good", *GOOD)
    stale = {}
    story.say("Four good tasks. The loader knows a library by its path, and all have the same:")
    for runtime in ("tensormap_and_ringbuffer", "host_build_graph"):
        ended = bench.runner("-r", runtime, CHIP_FIXED_PATH="1")
        stale.update(_results(ended))
        story.show([re.sub(r"/\S*/orch", ".../orch", line.removeprefix("RESULT ")) for line in ended.lines("RESULT")])
    facts["stale"] = stale

    crash = Bench(place, "crash", "wild", "add", "triple").runner()
    facts["crash"] = {"status": crash.status, "results": len(_results(crash))}
    story.say(f"One task of three crashes: the runner is gone (status {crash.status}), and every result with it.")

    bench = Bench(place, "hang", "spin", "add", "triple")
    limit = max(LIMIT, math.ceil(4 * crash.seconds))  # it compiled as much, on a machine that may be busy
    hang = bench.runner("-t", str(limit), seconds=limit + PATIENCE)
    gave_up = bool(hang.lines("TIMEOUT"))
    facts["hang"] = {"gave_up": gave_up, "killed": hang.status == -9, "results": len(_results(hang))}
    story.say(f"One of three hangs in native code. It says so, calls sys.exit, and is there {PATIENCE} s later still:")
    story.show([*hang.lines("TIMEOUT"), f"(killed from outside; {len(_results(hang))} results)"])

    device = Bench(place, "device", "add", "reduce", "square").runner("-d", "0-1", CHIP_BAD="0")
    facts["bad_device"] = _results(device)
    story.say("One of two devices is bad: what was meant for it fails, and is not tried on the other.")
    story.show([line.removeprefix("RESULT ") for line in device.lines("RESULT", "FAIL")])

    broken = Bench(place, "broken").runner()
    facts["broken"] = {"status": broken.status, "results": len(_results(broken))}
    story.say(f"One task does not compile: nothing is run at all ({len(_results(broken))} results).")

    pinned = Bench(place, "pinned", "scale", "add").runner("-c", "deps/pto-isa-pinned")
    facts["pinned"] = {"status": pinned.status, "failures_in_the_table": len(pinned.lines("RESULT", "FAIL"))}
    story.say("One needs the pinned PTO-ISA: the second pass takes the place of the first in the table.")
    story.show([line.removeprefix("RESULT ") for line in pinned.lines("RESULT", "scale")])
    return facts


def old_binary(story: showing.Story, place: Path) -> dict[str, object]:
    bench = Bench(place, "old", *GOOD)
    bench.runner()
    bench.break_the_runtime()
    passed = list(_results(bench.runner()).values()).count("")
    built = list(_results(bench.runner("--build-runtime")).values()).count("")
    story.say(f"Somebody breaks the runtime's source: {passed} of {len(GOOD)} pass, with the binary that was there.")
    story.say(f"With --build-runtime, {built} pass.")
    return {"passed": passed, "passed_when_built": built}


def process_each(story: showing.Story, place: Path) -> dict[str, object]:
    """What the runner was to replace: a process, its imports and an opened device for every task."""
    benches = [Bench(place, f"each-{name}", name) for name in GOOD]
    jobs = [bench.runner() for bench in benches for _ in range(COPIES)]
    passed = sum(job.good for job in jobs)
    processes = sum(len({words[-1] for words in bench.noted("open")}) for bench in benches)
    story.say(f"A process for each of {len(jobs)} good tasks: {passed} pass, in {processes} processes.")
    return {"tasks": len(jobs), "passed": passed, "processes": processes}


# -- after ---------------------------------------------------------------------------------------------------------


def whole_batch(story: showing.Story, place: Path) -> dict[str, object]:
    bench = Bench(place, "batch")
    ended = bench.run("after.sh", "sh", "after.sh", CHIP_BAD=BAD)
    first, second = [*_reports(bench, ended), {}, {}][:2]
    items = {_short(item): item for item in first.get("items", [])}
    story.say("The whole batch, with all of that in it, and device 1 bad. The tables of both passes:")
    story.show(_tables(ended), most=20)
    story.show(ended.lines("quarantined: ")[:1])
    by_process: dict[str, set[str]] = {}
    for runtime, _device, pid in bench.noted("open"):
        by_process.setdefault(pid, set()).add(runtime)
    stacks = [line.strip() for line in _dump(items.get("spin")).splitlines() if "chip_tasks.py" in line]
    story.say("Where it hung:")
    story.show([line.replace(str(bench.place), "") for line in stacks[:1]])
    logs = sorted(path.name for path in bench.place.glob("logs/*wild*"))
    story.say("The crash, one file per attempt:")
    story.show(logs)
    return {
        "status": ended.status,
        "verdicts": {name: item["verdict"] for name, item in items.items()},
        "pinned": {_short(item): item["verdict"] for item in second.get("items", [])},
        "cases_in_junit": [_cases(bench.place / name) for name in ("results.xml", "pinned.xml")],
        "rows_in_tables": len(_tables(ended)),
        "quarantined": {entry["device"]: entry["why"] for entry in first.get("quarantined", [])},
        "hang_seen_in": stacks[:1],
        "logs_of_crash": len(logs),
        "attempts_of_crash": len(items["wild"]["attempts"]) if items else 0,
        "processes_with_two_runtimes": sum(len(runtimes) > 1 for runtimes in by_process.values()),
        "compiled_on_a_device": len({pid for _name, pid in bench.noted("compile")} & set(by_process)),
    }


def other_devices(story: showing.Story, place: Path) -> dict[str, object]:
    bench = Bench(place, "devices", "wild")
    ended = bench.test("--devices", "sim:4", "--retries", "3")
    attempts = [attempt for item in _items(bench, ended) for attempt in item["attempts"]]  # type: ignore[attr-defined]
    devices = [attempt["device"] for attempt in attempts]
    story.say("A task that crashes wherever it runs, on four devices with --retries 3:")
    story.show([f"{attempt['device']} {attempt['outcome']}" for attempt in attempts])
    return {
        "devices": len({*devices}),
        "attempts": len(devices),
        "outcome": attempts[-1]["outcome"] if attempts else "",
    }


def fault_named(story: showing.Story, place: Path) -> dict[str, object]:
    """The chip keeps its fixed path: the verdict is right all the same, and the cause is named."""
    bench = Bench(place, "fixed", *GOOD)
    ended = bench.test("--runtime", "host_build_graph", "--devices", "sim:1", CHIP_FIXED_PATH="1")
    items = _items(bench, ended)
    dirt = [found for item in items for attempt in item["attempts"] for found in attempt["dirt"]]  # type: ignore[attr-defined]
    stale = [kind for kind, _what in dirt]
    story.say("A chip that still has one path for everything, with --runtime host_build_graph:")
    story.show(
        [re.sub(r"/\S*/orch", ".../orch", line) for line in ended.lines("flaky: ") + ended.lines("left behind: ")]
    )
    suspects = [_short(item) for item in items if item["flaky"]]
    return {"verdicts": {_short(item): item["verdict"] for item in items}, "named": stale, "suspects": suspects}


def built_from_what_is_there(story: showing.Story, place: Path) -> dict[str, object]:
    bench = Bench(place, "built", *GOOD)
    facts: dict[str, object] = {}
    for name, words in {"first": [], "second": ["-k", "square or triple"], "rebuild": ["--rebuild", "all"]}.items():
        ended = bench.test("--devices", "sim:1", *words)
        facts |= {name: bench.binaries(), f"run_in_{name}": sorted(_short(item) for item in _items(bench, ended))}
    bench.break_the_runtime()
    verdicts = [item["verdict"] for item in _items(bench, bench.test("--devices", "sim:1"))]
    facts |= {"edited": bench.binaries(), "failed": verdicts.count("failed")}
    story.say(f"Binaries of runtimes that were built by the first run: {facts['first']}")
    story.say(f"By a second one, with -k 'square or triple': {facts['second']}; with --rebuild all: {facts['rebuild']}")
    story.say(
        f"Somebody breaks the runtime's source: {facts['edited']} are built, {facts['failed']} of {len(GOOD)} fail."
    )
    return facts


def warm(story: showing.Story, place: Path) -> dict[str, object]:
    """The good tasks, several times over, cold: a task that is not compiled yet must not cost its runtime."""
    bench = Bench(place, "warm", *GOOD, copies=COPIES - 1)
    verdicts = [item["verdict"] for item in _items(bench, bench.test("--devices", "sim:1"))]
    opened = bench.noted("open")
    passed, processes = verdicts.count("passed"), len({words[-1] for words in opened})
    story.say(f"{len(verdicts)} good tasks of two runtimes, nothing compiled before: {passed} pass;")
    story.say(f"a device was opened {len(opened)} times, in {processes} processes.")
    facts = {"tasks": len(verdicts), "passed": passed, "opened": len(opened), "processes": processes}
    return {**facts, "compiled": len(bench.noted("compile"))}


# -- the whole -----------------------------------------------------------------------------------------------------


def tell(story: showing.Story, place: Path) -> bool:
    if not shutil.which("gcc"):
        raise showing.CannotShow("there is no gcc")
    before, after = story.facts["before"], story.facts["after"]
    story.heading("Before: one process for everything, or one for each")
    before["one_process"] = one_process(story, place)
    before["old_binary"] = old_binary(story, place)
    before["process_each"] = process_each(story, place)
    story.heading("After: ondol test")
    after["batch"] = whole_batch(story, place)
    after["retries"] = other_devices(story, place)
    after["fixed_path"] = fault_named(story, place)
    after["built"] = built_from_what_is_there(story, place)
    after["warm"] = warm(story, place)
    return happened(before) and gone(after)


def happened(before: dict[str, dict[str, object]]) -> bool:
    one, each = before["one_process"], before["process_each"]
    stale, device = one["stale"], one["bad_device"]
    return (
        "wrong result" in stale.get("triple", "")  # type: ignore[attr-defined]
        and "undefined symbol: build_square_graph" in stale.get("square", "")  # type: ignore[attr-defined]
        and one["crash"] == {"status": -11, "results": 0}
        and one["hang"] == {"gave_up": True, "killed": True, "results": 0}
        and "507899" in device.get("reduce", "")  # type: ignore[attr-defined]
        and one["broken"] == {"status": 1, "results": 0}
        and one["pinned"] == {"status": 0, "failures_in_the_table": 0}
        and before["old_binary"] == {"passed": len(GOOD), "passed_when_built": 0}
        and each["passed"] == each["processes"] == each["tasks"]
    )


def gone(after: dict[str, dict[str, object]]) -> bool:
    return _batch_is_told(after["batch"]) and _rest_is_right(after)


def _batch_is_told(batch: dict[str, object]) -> bool:
    cases = [len(VERDICTS), len(PINNED)]
    return (
        (batch["status"], batch["verdicts"], batch["pinned"]) == (1, VERDICTS, PINNED)
        and (batch["cases_in_junit"], batch["rows_in_tables"]) == (cases, sum(cases))
        and "507899" in str(batch["quarantined"].get(f"sim{BAD}"))  # type: ignore[attr-defined]
        and bool(batch["hang_seen_in"])
        and batch["attempts_of_crash"] == batch["logs_of_crash"] == 4
        and (batch["processes_with_two_runtimes"], batch["compiled_on_a_device"]) == (0, 0)
    )


def _rest_is_right(after: dict[str, dict[str, object]]) -> bool:
    fixed, many = after["fixed_path"], after["warm"]
    built = {"first": BINARIES, "second": 0, "edited": 2, "failed": len(GOOD), "run_in_second": ["square", "triple"]}
    return (
        after["retries"] == {"devices": 4, "attempts": 4, "outcome": "crashed"}
        and fixed["verdicts"] == {"reduce": "passed", "square": "passed"}
        # Whichever was compiled last and so came second.
        and (fixed["named"], fixed["suspects"]) in [(["stale library"], ["reduce"]), (["stale library"], ["square"])]
        and {name: after["built"][name] for name in built} == built
        and after["built"]["rebuild"] >= BINARIES  # type: ignore[operator]
        and many["passed"] == many["tasks"] == len(GOOD) * COPIES
        and (many["opened"], many["processes"]) == (2, 2)
        and many["compiled"] == BINARIES + len(GOOD) * COPIES
    )


def _results(ended: showing.Ended) -> dict[str, str]:
    """Task → why it failed, empty for a pass; from the runner's table."""
    rows = [line.split(" ", 6) for line in ended.lines("RESULT")]
    return {row[1].rpartition("/")[2]: (row[6] if row[5] == "FAIL" else "") for row in rows}


def _reports(bench: Bench, ended: showing.Ended) -> list[dict[str, list[dict[str, object]]]]:
    """The journals of its runs, each as one document."""
    found = []
    for line in ended.lines("journal: "):
        journal = line.split("journal: ")[1].split(" (")[0]
        bench.run("report", "ondol", "report", journal, "--json", "report.json")
        found.append(dict(json.loads((bench.place / "report.json").read_text())))
    return found


def _items(bench: Bench, ended: showing.Ended) -> list[dict[str, object]]:
    return [item for report in _reports(bench, ended) for item in report["items"]]


def _tables(ended: showing.Ended) -> list[str]:
    """The tables of tasks, without what is the same in each of their lines."""
    rows = [line for line in ended.lines("chip.ondol.toml::", "  ") if line.startswith("chip.")]
    return [line.partition("::")[2] for line in rows]


def _cases(junit: Path) -> int:
    return len(ElementTree.parse(junit).findall(".//testcase")) if junit.exists() else 0


def _short(item: dict[str, object]) -> str:
    return str(item["nodeid"]).rpartition("/")[2]


def _dump(item: dict[str, object] | None) -> str:
    attempts = item["attempts"] if item else []
    return "\n".join(str(attempt.get("dump", "")) for attempt in attempts)  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(showing.main("simpler", __doc__ or "", tell))
