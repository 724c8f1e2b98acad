"""A log as parts: each belongs to one failed test, or to none. Two kinds of logs are read as parts, each by a file of
its own: what pytest prints (and any other text), and JUnit XML.
"""

from __future__ import annotations

from collections.abc import Iterator

from ondol.light import Protocol, Record


class LogPart(Record):
    #: What the reader calls it: the same for all parts of one text; empty for what belongs to no test.
    label: str
    #: The number of its first line, as an editor counts them.
    number: int
    text: str


class FailedTest(Record):
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
