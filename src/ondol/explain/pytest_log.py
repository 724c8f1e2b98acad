"""What pytest prints, also with xdist, under any CI system's prefixes; and any other text, which has no tests. Pure.

Each failed test has a section with a title (`____ TestOps.test_add[1] ____`) and a line in the summary (`FAILED
tests/test_ops.py::TestOps::test_add[1] - …`). The title lacks the file, so sections of one title are told apart by
their order, which is the summary's.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ondol.explain import noise
from ondol.explain.explainer import FailedTest, LogPart
from ondol.explain.match import blocks

_RULE = re.compile(r"=+ (.+?) =+\s*$")
_SECTIONS = ("FAILURES", "ERRORS")
#: A test may print rules of its own; only pytest's end the sections.
_END = re.compile(
    r"(?:rerun |short )?test (?:summary info|session starts)|warnings summary|X?PASSES|XFAILURES"
    r"|slowest |tests coverage|.* in \d+\.\d+s"
)
_TITLE = re.compile(r"_+ (?!_)(\S.*?) _+\s*$")
_CAPTURED = re.compile(r"-{3,} Captured ")
_PHASE = re.compile(r"ERROR (?:at (setup|call|teardown) of |(collecting) )")
_SUMMARY = re.compile(r"(FAILED|ERROR) ([^\s:]+\.\w+::.+?|[^\s:]+\.py)( - .*)?\s*$")
#: `pytest -v` while it runs; with xdist the other way round.
_LIVE = re.compile(r"([^\s:]+\.\w+::.+?) (FAILED|ERROR)(?:\s+\[\s*\d+%\])?\s*$")
_LIVE_XDIST = re.compile(r"\[\s*\d+%\] (FAILED|ERROR) ([^\s:]+\.\w+::.+?)\s*$")
#: A block without any of these, outside the sections, need not be looked at line by line.
_SIGNS = (" FAILURES =", " ERRORS =", "FAILED ", "ERROR ")
#: No title and no name is longer; a line of megabytes costs no more than this.
_LONGEST = 2000


class PytestLog:
    """A `Log`. The text may hold several runs, one after the other."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.trouble = ""
        self._lines = lines
        self._runs = [_Run(0)]
        self._inside = False
        #: In a section, above what the test printed.
        self._traceback = False
        self._label = ""
        #: The label of the line before this one, if it named a failed test and gave no reason: people and scripts put
        #: the reason on the next line.
        self._reason_for = ""

    def parts(self) -> Iterator[LogPart]:
        for number, text in blocks(self._lines):
            if self._inside or self._reason_for or any(sign in text for sign in _SIGNS):
                yield from self._split(text, number)
            else:
                yield LogPart("", number, text)

    def _split(self, text: str, number: int) -> Iterator[LogPart]:
        held: list[str] = []
        for line in text.split("\n"):
            node_label, label = self._read(noise.without_prefix(line[:_LONGEST]))
            if held and (node_label or label != self._label):
                yield LogPart(self._label, number - len(held), "\n".join(held))
                held = []
            self._label = label
            if node_label:
                yield LogPart(node_label, number, line)
            else:
                held.append("" if self._traceback and noise.is_source(line) else line)
            number += 1
        if held:
            yield LogPart(self._label, number - len(held), "\n".join(held))

    def _read(self, line: str) -> tuple[str, str]:
        """(the label of this line alone, if it names a failed test; the label of the section that it is in)"""
        reason_for, self._reason_for = self._reason_for, ""
        rule = _RULE.match(line) if line.startswith("=") else None
        if rule and (rule[1] in _SECTIONS or _END.match(rule[1])):
            self._inside, self._traceback = rule[1] in _SECTIONS, False
            if self._inside and self._runs[-1].summed_up:
                self._runs.append(_Run(len(self._runs)))
            return "", ""
        if self._inside:
            title = _TITLE.match(line) if line.startswith("_") else None
            self._traceback = bool(title) or (self._traceback and not _CAPTURED.match(line))
            return "", self._runs[-1].section(title[1]) if title else self._label
        alone = self._listing(line) if "FAILED" in line or "ERROR" in line else ""
        return alone, "" if alone else reason_for

    def _listing(self, line: str) -> str:
        if found := _SUMMARY.match(line):
            self._runs[-1].summed_up = True
            label = self._runs[-1].listed(found[1], found[2])
            self._reason_for = "" if found[3] else label
            return label
        if found := _LIVE_XDIST.match(line):
            return self._runs[-1].listed(found[1], found[2])
        found = _LIVE.match(line)
        return self._runs[-1].listed(found[2], found[1]) if found else ""

    def failed(self) -> list[FailedTest]:
        return [test for run in self._runs for test in run.failed()]


class _Run:
    """The failed tests of one run of pytest."""

    def __init__(self, number: int) -> None:
        self.summed_up = False
        self._number = number
        #: label → (FAILED or ERROR, title, how many sections of this title were before it), in order.
        self._sections: dict[str, tuple[str, str, int]] = {}
        self._titles: Counter[tuple[str, str]] = Counter()
        #: (FAILED or ERROR, node id) → label, of summary and live lines, in order.
        self._listed: dict[tuple[str, str], str] = {}

    def section(self, title: str) -> str:
        """The label of a section that begins with this title."""
        phase = _PHASE.match(title)
        when = phase[1] or phase[2] if phase else "call"
        title = title[phase.end() :] if phase else title
        which = self._titles[when, title]
        self._titles[when, title] += 1
        label = f"run {self._number} {when} {which} {title}"
        self._sections[label] = ("ERROR" if phase else "FAILED", title, which)
        return label

    def listed(self, kind: str, node: str) -> str:
        """The label of a line that says that this node failed."""
        return self._listed.setdefault((kind, node), f"run {self._number} node {node}")

    def failed(self) -> list[FailedTest]:
        #: (name, which of those that are called so) → labels
        labels: dict[tuple[str, int], list[str]] = {}
        for (_, node), label in self._listed.items():
            labels.setdefault((node, 0), []).append(label)
        for label, key in self._names().items():
            labels.setdefault(key, []).append(label)
        return [FailedTest(name, tuple(dict.fromkeys(own))) for (name, _), own in labels.items()]

    def _names(self) -> dict[str, tuple[str, int]]:
        """The node id of each section; where the summary has none, its title, and the how-manieth section it is."""
        nodes: dict[tuple[str, str], list[str]] = {}
        for kind, node in self._listed:
            path, _, inner = node.partition("::")
            nodes.setdefault((kind, inner.replace("::", ".") or path), []).append(node)
            if inner:  # the section of a worker that crashed is called by its file
                nodes.setdefault(("crashed", path), []).append(node)
        names = {}
        for label, (kind, title, which) in self._sections.items():
            same = nodes.get((kind, title.replace("::", "."))) or nodes.get(("crashed", title)) or []
            names[label] = (same[which], 0) if which < len(same) else (title, which)
        return names
