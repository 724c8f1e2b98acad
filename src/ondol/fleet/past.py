"""What earlier runs add up to: per test its runs, failures, flakiness and durations. Pure."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ondol.fleet.record import MEASURED, RunRecord
from ondol.fleet.verdict import BAD, INCOMPLETE, Verdict

FORMAT = 1
#: Durations that are remembered of one test: the usual one is the middle of the newest.
_NEWEST = 20
_MEASURED = frozenset(verdict.value for verdict in MEASURED)
_SKIPPED = Verdict.SKIPPED.value
_VERDICTS = frozenset(verdict.value for verdict in Verdict)


class Outcome(NamedTuple):
    """What became of one item in one run."""

    verdict: str
    flaky: bool = False
    seconds: float = 0.0
    #: It failed and was muted (`ondol-known.toml`).
    known: bool = False

    @property
    def failed(self) -> bool:
        return self.verdict in BAD

    @property
    def unknown(self) -> bool:
        return self.verdict in INCOMPLETE


class PastRun(NamedTuple):
    """One run, without its texts."""

    name: str
    began: float
    seconds: float
    status: int | None
    host: str
    root: str
    #: Entries that it compiled and entries that it took from the store, where its rooms told.
    compiled: int | None
    used: int | None
    items: Mapping[str, Outcome]

    def counts(self) -> dict[str, int]:
        found = dict.fromkeys(_VERDICTS, 0)
        for item in self.items.values():
            found[item.verdict] += 1
        return {verdict.value: found[verdict.value] for verdict in Verdict if found[verdict.value]}


def of_record(record: RunRecord, name: str = "", host: str = "") -> PastRun:
    items = {
        item.nodeid: Outcome(
            item.verdict, item.flaky, round(item.attempts[-1].seconds, 4) if item.attempts else 0.0, item.muted
        )
        for item in record.items
        if item.verdict
    }
    told = [tool for room in record.rooms for tool in room.room.get("tools", {}).values()]
    sums = [sum(int(tool.get(what) or 0) for tool in told) for what in ("new", "used")]
    compiled, used = sums if record.rooms else (None, None)
    began, root = record.first, record.run.root
    return PastRun(name, began, record.last - began, record.status, host, root, compiled, used, items)


def to_line(run: PastRun) -> bytes:
    """For a kept journal; the name is the file's."""
    items = [[nodeid, *outcome] for nodeid, outcome in run.items.items()]
    return json.dumps({"e": "past", "format": FORMAT, **run._asdict(), "items": items}).encode() + b"\n"


def from_line(line: bytes, name: str) -> PastRun | None:
    """None for what is no such line; a test's name may be anything, and everything else has its type."""
    try:
        told = json.loads(line)
        if told["e"] != "past" or told["format"] != FORMAT:
            return None
        items = {str(nodeid): _outcome(*rest) for nodeid, *rest in told["items"]}
        status, compiled, used = (None if told[k] is None else int(told[k]) for k in ("status", "compiled", "used"))
        began, seconds = _finite(told["began"]), _finite(told["seconds"])
        host, root = str(told["host"]), str(told["root"])
        return PastRun(name, began, seconds, status, host, root, compiled, used, items)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return None


def _outcome(verdict: str, flaky: int, seconds: float, known: int) -> Outcome:
    if verdict not in _VERDICTS:
        raise ValueError(verdict)
    return Outcome(verdict, bool(flaky), _finite(seconds), bool(known))


def _finite(value: Any) -> float:
    if not math.isfinite(found := float(value)) or found < 0:
        raise ValueError(value)
    return found


@dataclass
class TestPast:
    """One test over all runs, the oldest first."""

    #: (name of the run, when, what became of it)
    story: list[tuple[str, float, Outcome]] = field(default_factory=list)

    @cached_property
    def counted(self) -> list[Outcome]:
        """Those that tell whether it is good."""
        return [one for _, _, one in self.story if not (one.unknown or one.verdict == _SKIPPED)]

    @property
    def durations(self) -> list[float]:
        return [one.seconds for one in self.counted if one.verdict in _MEASURED]

    @cached_property
    def usual(self) -> float | None:
        middle = sorted(self.durations[-_NEWEST:])
        return middle[len(middle) // 2] if middle else None

    @property
    def runs(self) -> int:
        return len(self.counted)

    @property
    def failures(self) -> int:
        return sum(one.failed for one in self.counted)

    @property
    def skipped(self) -> int:
        return sum(one.verdict == _SKIPPED for _, _, one in self.story)

    @property
    def flaky(self) -> int:
        """Passed when it was tried again, or failed alone between two runs in which it passed: what fails from some
        run on is broken, and what fails until some run was mended.
        """
        failed = [True, *(one.failed for one in self.counted), True]
        alone = sum(failed[n - 1 : n + 2] == [False, True, False] for n in range(1, len(failed) - 1))
        return alone + sum(one.flaky and not one.failed for one in self.counted)

    @property
    def flaky_rate(self) -> float:
        return self.flaky / self.runs if self.runs else 0.0


def fold(runs: Iterable[PastRun]) -> dict[str, TestPast]:
    """By node id."""
    found: dict[str, TestPast] = {}
    for run in sorted(runs, key=lambda run: (run.began, run.name)):
        for nodeid, outcome in run.items.items():
            found.setdefault(nodeid, TestPast()).story.append((run.name, run.began, outcome))
    return found


def usual(tests: Mapping[str, TestPast]) -> dict[str, float]:
    """Node id → how long it usually takes, where that is known."""
    return {nodeid: usual for nodeid, test in tests.items() if (usual := test.usual) is not None}


def flakiest(tests: Mapping[str, TestPast]) -> list[tuple[str, TestPast]]:
    found = [(nodeid, test) for nodeid, test in tests.items() if test.flaky_rate > 0]
    return sorted(found, key=lambda one: (-one[1].flaky_rate, -one[1].runs, one[0]))


def slowest(tests: Mapping[str, TestPast]) -> list[tuple[str, TestPast]]:
    found = [(nodeid, test) for nodeid, test in tests.items() if test.usual is not None]
    return sorted(found, key=lambda one: (-(one[1].usual or 0.0), one[0]))


def named(tests: Mapping[str, TestPast], wanted: str) -> list[tuple[str, TestPast]]:
    """The test of this node id, or all whose id holds the text."""
    if wanted in tests:
        return [(wanted, tests[wanted])]
    return sorted((nodeid, test) for nodeid, test in tests.items() if wanted in nodeid)


def newest(runs: Sequence[PastRun], before: float, most: int) -> list[PastRun]:
    """Those that had ended by then, at most so many of the newest."""
    done = [run for run in runs if run.began + run.seconds < before]
    return sorted(done, key=lambda run: (run.began, run.name))[-most:]
