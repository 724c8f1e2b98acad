"""Suites that nobody here wrote: plain pytest, a process per file, and `ondol test`, cold and warm; a worker killed.

A step leaves its caches or its store behind, and the warm step of the same way begins with them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.gpu.process import PLACE, ROOT, Ended, Person, caches, environment, own, python, run, said

Facts = dict[str, Any]
STATE, LOGS = PLACE / "state", PLACE / "logs"
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "-rfE"]
#: Of each tool that a suite compiles with.
VARIABLES = {"triton": "TRITON_CACHE_DIR", "tilelang": "TILELANG_CACHE_DIR", "inductor": "TORCHINDUCTOR_CACHE_DIR"}


@dataclass(frozen=True)
class Suite:
    """Which of its tests, and what `ondol test` is told besides."""

    name: str
    files: tuple[str, ...]
    chosen: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        return PLACE / self.name


FLA = Suite("fla", ("tests/modules/test_l2norm.py", "tests/modules/test_rotary.py", "tests/ops/test_based.py"))
#: One data type of gated linear attention, because each costs a minute of autotuning. One test of test_rms_norm.py
#: holds only after the one before it in the same process, so files are kept together.
TILEOPS = Suite(
    "tileops",
    tuple(f"tests/ops/test_{name}.py" for name in ("gla_chunkwise_fwd", "gla_recurrence", "rms_norm")),
    ("-m", "smoke", "-k", "dtype1 or rms_norm"),
    ("--dist", "loadfile"),
)
#: Seeds and switches that are set while a module is imported, and ranks that a test starts itself.
LIGER = Suite(
    "liger", tuple(f"test/transformers/test_{name}.py" for name in ("softmax", "layer_norm", "geglu", "rope"))
)
#: Options of its conftest, a hook that looks up what another one noted, threads and processes that tests start.
GEMS = Suite(
    "gems",
    tuple(f"tests/test_{name}.py" for name in ("shape_utils", "tensor_wrapper", "libentry", "pointwise_dynamic")),
    ("--mode", "quick"),
)
SUITES = {suite.name: suite for suite in (FLA, TILEOPS, LIGER, GEMS)}
WORKERS = {"one": 1, "four": 4}


class NotReady(Exception):
    """A warm step without the cold one."""


def step(suite: Suite, way: str, state: str, limit: float) -> Facts:
    """`fla:plain:cold` and its like."""
    if way in WORKERS:
        return ondol_test(suite, way, state, limit)
    folder = STATE / f"{suite.name}-{way}"
    if state == "cold":
        shutil.rmtree(folder, ignore_errors=True)
    elif not folder.exists():
        folder = STATE / f"{suite.name}-plain"  # the same kernels
        if not folder.exists():
            raise NotReady(f"{suite.name}:{way}:cold comes first")
    groups = [[file] for file in suite.files] if way == "files" else [list(suite.files)]
    env = {variable: str(own(folder / tool, ROOT)) for tool, variable in VARIABLES.items()}
    parts: list[Facts] = []
    left = limit
    for number, files in enumerate(groups):
        if parts and left < 5:
            parts[-1]["cut_off"] = True
            break
        name = f"{suite.name}-{way}-{state}-{number}"
        parts.append(plain(name, [*suite.chosen, *files], suite.root, left, env))
        left -= parts[-1]["seconds"]
    told = _added(parts)
    if way == "plain":
        (STATE / f"{suite.name}.verdicts").write_text(json.dumps(told["verdicts"]))
    return {**told, **_compared(suite, told["verdicts"])}


def plain(
    name: str, words: list[str], cwd: Path, limit: float, env: dict[str, str], person: Person = ROOT, *before: str
) -> Facts:
    """pytest as it is, perhaps with something before it (`ondol run … --`)."""
    events = own(LOGS / f"of-{person.uid}", person) / f"{name}.events"
    events.unlink(missing_ok=True)
    own(person.home, person)
    extra = {**env, "BENCH_EVENTS": str(events)}
    command = [*before, *python(*PYTEST, "-p", "bench.gpu.events", *words)]
    ended = run(command, LOGS / f"{name}.log", limit, environment(person, **extra), cwd, person)
    told = list(_lines(events))
    verdicts: dict[str, str] = {}
    for event in told:
        if event["e"] == "verdict" and verdicts.get(event["item"]) in {None, "passed"}:
            verdicts[event["item"]] = event["verdict"]
    at = {event["e"]: event["t"] for event in told}
    return {**_common(ended, verdicts, at.get("collected"), at.get("over")), "logs": [name]}


def ondol_test(suite: Suite, way: str, state: str, limit: float) -> Facts:
    """`ondol test` on a store of its own; warm, also on the other way's."""
    folder = STATE / f"{suite.name}-{way}"
    if state == "cold":
        shutil.rmtree(folder, ignore_errors=True)
        init(folder / "store")
    return _run_ondol(suite, f"{suite.name}-{way}-{state}", WORKERS[way], _store(suite, way), limit)


def init(store: Path, *options: str) -> None:
    own(store.parent, ROOT)
    log = LOGS / f"init-{store.parent.name}.log"
    ended = run(python("-m", "ondol", "store", "init", store, *options), log, 60, environment(ROOT))
    if ended.status:
        raise NotReady(f"ondol store init: {ended.output[-500:]}")


def _store(suite: Suite, way: str) -> Path:
    for name in (way, *WORKERS):
        store = STATE / f"{suite.name}-{name}" / "store"
        if store.exists():
            return store
    raise NotReady(f"{suite.name}:{way}:cold comes first")


def kill(suite: Suite, limit: float) -> Facts:
    """Four workers on a warm store, one of them killed while it runs an item."""
    return _run_ondol(suite, f"{suite.name}-kill", 4, _store(suite, "four"), limit, kill=True)


def taken(suite: Suite, when: str, limit: float) -> Facts:
    """A suite that nobody can fork: `first`, when nothing is known of it, `again`, and with a worker killed."""
    words = ("-p", "bench.gpu.takes_device")
    return _run_ondol(
        replace(suite, ours=(*suite.ours, *words)),
        f"{suite.name}-taken-{when}",
        4,
        _store(suite, "four"),
        limit,
        kill=when == "kill",
    )


def _run_ondol(suite: Suite, name: str, workers: int, store: Path, limit: float, kill: bool = False) -> Facts:
    """With the journal's account of it."""
    journal = LOGS / f"{name}.jsonl"
    journal.unlink(missing_ok=True)
    own(ROOT.home, ROOT)
    words = ["-m", "ondol", "test", "--store", str(store), "--workers-per-device", str(workers)]
    words += ["--journal", str(journal), *suite.ours, *PYTEST[2:], *suite.chosen, *suite.files]
    killer = Killer(journal) if kill else None
    watch = killer.look if killer else None
    ended = run(python(*words), LOGS / f"{name}.log", limit, environment(ROOT), suite.root, beside=watch)
    told = of_journal(ended, journal)
    told["logs"] = [name]
    return {**told, **_compared(suite, told["verdicts"]), **(killer.account() if killer else {})}


def of_journal(ended: Ended, journal: Path) -> Facts:
    """Verdicts, how workers were started, how long each took to come."""
    events = list(_lines(journal))
    names: list[str] = next((event["items"] for event in events if event["e"] == "planned"), [])
    verdicts = {names[event["item"]]: event["verdict"] for event in events if event["e"] == "verdict"}
    at = {event["e"]: event["t"] for event in events if event["e"] in {"planned", "over"}}
    mode = [event["mode"] for event in events if event["e"] == "run" and event.get("mode")]
    starts = [round(event.get("took", 0.0), 2) for event in events if event["e"] == "worker"]
    told = _common(ended, verdicts, at.get("planned"), at.get("over"))
    flaky = sorted({names[event["item"]] for event in events if event["e"] == "verdict" and event.get("flaky")})
    return {**told, "mode": mode[-1:], "workers_up_after": starts, "flaky": flaky}


def _common(ended: Ended, verdicts: dict[str, str], collected: float | None, over: float | None) -> Facts:
    told: Facts = {**ended.facts(), "counts": dict(Counter(verdicts.values())), "verdicts": verdicts}
    if collected is not None:
        told["until_collected"] = round(collected - ended.began, 1)
        told["after_collection"] = round((over or ended.began + ended.seconds) - collected, 1)
    return {**told, "caches": caches(ended.output), "said": said(ended.output, "ondol: ", most=12)}


def _added(parts: list[Facts]) -> Facts:
    """One account of several commands, one after the other."""
    whole = dict(parts[0])
    for part in parts[1:]:
        whole["status"] = whole["status"] or part["status"]
        whole["largest_mib"] = max(whole["largest_mib"], part["largest_mib"])
        whole["cut_off"] = whole.get("cut_off", False) or part.get("cut_off", False)
        whole["verdicts"] = {**whole["verdicts"], **part["verdicts"]}
        whole["logs"] = [*whole["logs"], *part["logs"]]
        for name in ("seconds", "until_collected", "after_collection"):
            whole[name] = round(whole.get(name, 0.0) + part.get(name, 0.0), 1)
    return {**whole, "counts": dict(Counter(whole["verdicts"].values())), "parts": [part["seconds"] for part in parts]}


def _compared(suite: Suite, verdicts: dict[str, str]) -> Facts:
    """With plain pytest's in one process, where that was run on this machine."""
    file = STATE / f"{suite.name}.verdicts"
    if not file.exists():
        return {"as_plain": None}
    plain_ones: dict[str, str] = json.loads(file.read_text())
    names = plain_ones.keys() | verdicts.keys()
    other = {name: [plain_ones.get(name), verdicts.get(name)] for name in sorted(names)}
    other = {name: pair for name, pair in other.items() if pair[0] != pair[1]}
    return {"as_plain": not other, "differences": dict(list(other.items())[:20])}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; the last may be torn."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            return


class Killer:
    """Kills one worker with SIGKILL while it runs an item, and finds out when another took the next one."""

    #: So many items have ended before: the run is in full swing.
    AFTER = 8

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._killed: Facts = {}

    def look(self, _pid: int) -> None:
        if self._killed:
            return
        events = list(_lines(self._journal))
        ended = [event["item"] for event in events if event["e"] == "end"]
        pids = {event["worker"]: event["pid"] for event in events if event["e"] == "worker"}
        old = time.time() - 0.2  # in the middle of an item, not at its first moment
        running = [
            event for event in events if event["e"] == "start" and event["item"] not in ended and event["t"] < old
        ]
        if len(ended) >= self.AFTER and running and running[-1]["worker"] in pids:
            victim = running[-1]
            os.kill(pids[victim["worker"]], signal.SIGKILL)
            self._killed = {**victim, "t": time.time(), "pid": pids[victim["worker"]]}

    def account(self) -> Facts:
        if not self._killed:
            return {"killed": None}
        events = [event for event in _lines(self._journal) if event["t"] >= self._killed["t"] - 1]
        slot, worker, when = self._killed["slot"], self._killed["worker"], float(self._killed["t"])

        def first(kind: str, mine: bool) -> float | None:
            """Seconds after the kill, of the first such event of this slot."""
            for event in events:
                is_mine = event.get("worker") == worker
                if event["e"] == kind and event.get("slot") == slot and is_mine == mine and event["t"] >= when - 0.5:
                    return round(float(event["t"]) - when, 3)
            return None

        told: Facts = {"noticed_after": first("worker-ended", True), "replacement_up_after": first("worker", False)}
        kinds = {"worker-ended", "worker", "probe", "start", "healed", "quarantine"}
        after = [{**event, "t": round(event["t"] - when, 3)} for event in events if event["e"] in kinds]
        told["then"] = [event for event in after if event["t"] >= 0][:12]
        ends = [event for event in events if event["e"] == "end" and event["item"] == self._killed["item"]]
        return {"killed": {**self._killed, **told, "next_item_after": first("start", False), "its_attempts": ends[:3]}}
