"""From logs to what happened: every failure is led back to its first cause, and each cause is reported once. Pure.

A test that fails is explained by the first cause in its own text. What stands outside any test is a fault of its own.
What a tool only warned of explains nothing, and is kept apart. Failed tests whose text matches nothing are counted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ondol.explain.match import Hit, Scanner, first_cause
from ondol.explain.signature import Signature

#: Of one test; more of them cannot change which was first.
_MOST_HITS = 200


class LogPart(NamedTuple):
    """Text that belongs to one failed test, or to none."""

    #: What the reader calls it: the same for all parts of one text; empty for what belongs to no test.
    label: str
    #: The number of its first line, as an editor counts them.
    number: int
    text: str


class FailedTest(NamedTuple):
    name: str
    #: Of the parts that belong to it; there may be none.
    labels: tuple[str, ...]


class Log(Protocol):
    """Reads one log. `parts` is used up first; what the others say is complete only then."""

    #: Whatever kept the log from being read to its end; empty if nothing did.
    trouble: str

    def parts(self) -> Iterator[LogPart]:
        """The log in order. Consecutive parts with one label are one text. Needs the memory of one part."""

    def failed(self) -> list[FailedTest]:
        """All tests that failed, in order, also those whose text says nothing; one that failed in two runs, twice."""


class Fault(NamedTuple):
    signature: Signature
    #: Names of the tests that failed from it, in order.
    tests: tuple[str, ...]
    #: How often it was seen: once in each of those tests, and outside of tests.
    times: int
    #: Where it was seen first.
    log: str
    line_number: int
    line: str


class Explanation:
    """Of logs that are added one after the other: those of the shards of a run, say."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._scanner = Scanner(signatures)
        self._logs: list[str] = []
        self._faults: dict[str, Fault] = {}
        self._warnings: dict[str, Fault] = {}
        #: How many tests failed.
        self.failed = 0
        #: Names of the failed tests that match nothing known.
        self.unexplained: list[str] = []
        #: What kept a log from being read to its end.
        self.troubles: list[str] = []

    @property
    def faults(self) -> list[Fault]:
        """Those that took down most tests first, then in the order of their appearance."""
        return sorted(self._faults.values(), key=lambda fault: (-len(fault.tests), self._place(fault)))

    @property
    def warnings(self) -> list[Fault]:
        """What tools said and went on; in the order of their appearance."""
        return sorted(self._warnings.values(), key=self._place)

    def _place(self, fault: Fault) -> tuple[int, int]:
        return self._logs.index(fault.log), fault.line_number

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
            self.troubles.append(f"{where}: {log.trouble}")

    def _tests(self, log: Log, in_tests: dict[str, list[Hit]], prefix: str) -> None:
        for test in log.failed():
            self.failed += 1
            cause = first_cause([hit for label in test.labels for hit in in_tests.get(label, [])])
            if cause is None:
                self.unexplained.append(prefix + test.name)
            else:
                self._count(self._faults, cause, prefix + test.name)

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

    def _count(self, among: dict[str, Fault], hit: Hit, *test: str) -> None:
        log, known = self._logs[-1], hit.signature
        seen = among.get(known.id) or Fault(known, (), 0, log, hit.line_number, hit.line)
        if seen.log == log and hit.line_number < seen.line_number:
            seen = seen._replace(line_number=hit.line_number, line=hit.line)
        among[known.id] = seen._replace(tests=seen.tests + test, times=seen.times + 1)
