"""From logs to what happened: every failure is led back to its first cause, and each cause is reported once. Pure.

A test that fails is explained by the first cause in its own text. What stands outside any test is a fault of its own.
What a tool only warned of explains nothing, and is kept apart. Failed tests whose text matches nothing are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ondol.explain.log_part import Log
from ondol.explain.match import Hit, Scanner, first_cause
from ondol.explain.signature import Signature
from ondol.light import Record

#: Of one test; more of them cannot change which was first.
_MOST_HITS = 200


class Fault(Record):
    signature: Signature
    #: Names of the tests that failed from it, in order.
    tests: tuple[str, ...]
    #: How often it was seen: once in each of those tests, and outside of tests.
    times: int
    #: Where it was seen first.
    log: str
    line_number: int
    line: str


class Explanation(Record):
    #: Those that took down most tests first, then in the order of their appearance.
    faults: tuple[Fault, ...]
    #: What tools said and went on; in the order of their appearance.
    warnings: tuple[Fault, ...]
    #: How many tests failed.
    failed: int
    #: Names of the failed tests that match nothing known.
    unexplained: tuple[str, ...]
    #: What kept a log from being read to its end.
    troubles: tuple[str, ...]


class Explainer:
    """Takes logs one after the other: those of the shards of a run, say."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._scanner = Scanner(signatures)
        self._logs: list[str] = []
        self._faults: dict[str, _Seen] = {}
        self._warnings: dict[str, _Seen] = {}
        self._failed = 0
        self._unexplained: list[str] = []
        self._troubles: list[str] = []

    def add(self, where: str, log: Log, prefix: str = "") -> None:
        """Read a log that is called `where`; `prefix` goes before the names of its tests."""
        self._logs.append(where)
        in_tests: dict[str, list[Hit]] = {}
        label = ""
        for part in log.parts():
            if part.label != label:
                self._scanner.forget()
                label = part.label
            hits = self._scanner.block(part.text, part.number)
            self._warn(hits)
            if label:
                kept = in_tests.setdefault(label, [])
                kept += hits[: max(0, _MOST_HITS - len(kept))]
            else:
                self._outside(hits)
        self._scanner.forget()
        self._tests(log, in_tests, prefix)
        if log.trouble:
            self._troubles.append(f"{where}: {log.trouble}")

    def _tests(self, log: Log, in_tests: dict[str, list[Hit]], prefix: str) -> None:
        for test in log.failed():
            self._failed += 1
            cause = first_cause([hit for label in test.labels for hit in in_tests.get(label, [])])
            if cause is None:
                self._unexplained.append(prefix + test.name)
            else:
                self._count(self._faults, cause).tests.append(prefix + test.name)

    def _outside(self, hits: list[Hit]) -> None:
        chains: dict[int, list[Hit]] = {}
        for hit in hits:
            chains.setdefault(hit.chain, []).append(hit)
        for chain in chains.values():
            cause = first_cause(chain)
            if cause is not None:
                self._count(self._faults, cause)

    def _warn(self, hits: list[Hit]) -> None:
        for hit in hits:
            if hit.signature.warning:
                self._count(self._warnings, hit)

    def _count(self, among: dict[str, _Seen], hit: Hit) -> _Seen:
        seen = among.setdefault(hit.signature.id, _Seen(hit, len(self._logs) - 1))
        seen.times += 1
        if (len(self._logs) - 1, hit.line_number) < seen.place:
            seen.first, seen.log = hit, len(self._logs) - 1
        return seen

    def result(self) -> Explanation:
        by_tests = sorted(self._faults.values(), key=lambda seen: (-len(seen.tests), seen.place))
        in_order = sorted(self._warnings.values(), key=lambda seen: seen.place)
        return Explanation(
            tuple(map(self._fault, by_tests)),
            tuple(map(self._fault, in_order)),
            self._failed,
            tuple(self._unexplained),
            tuple(self._troubles),
        )

    def _fault(self, seen: _Seen) -> Fault:
        first = seen.first
        where = self._logs[seen.log]
        return Fault(first.signature, tuple(seen.tests), seen.times, where, first.line_number, first.line)


class _Seen:
    """A fault while the logs are being read."""

    def __init__(self, first: Hit, log: int) -> None:
        self.first = first
        self.log = log
        self.times = 0
        self.tests: list[str] = []

    @property
    def place(self) -> tuple[int, int]:
        return self.log, self.first.line_number
