"""Broken entries in a tool's cache: torn, incomplete, mixed, pointing elsewhere. The tool itself would not notice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ondol.doctor import commands, installed, versions
from ondol.doctor.api import ERROR, NOTE, WARNING, Check, Finding, look
from ondol.doctor.subject import CACHE, Subject
from ondol.host import identity
from ondol.tools import registry
from ondol.tools.api import CacheDir, Refused
from ondol.words import entries as counted
from ondol.words import plural

#: What a tool's `scan` says → (how bad, what it does to a job). Entries that cannot be read are the owners' business.
_KINDS = {
    "torn": (WARNING, "a tool that takes it for a hit fails when it loads it; some notice, and compile again"),
    "mixed": (WARNING, "files of two writers: the tool may load code with the wrong metadata"),
    "outside": (WARNING, "it points at files elsewhere: those are read, or if they are gone it is a silent miss"),
    "incomplete": (WARNING, "a writer was killed, or files were trimmed one by one; some tools crash on it"),
    "unknown": (NOTE, "not an entry of this tool; nobody cleans it up"),
}
#: A younger one may be in the making.
_SETTLED = 600.0
#: How many paths one command names at most.
_MOST = 50


class Entries(Check):
    name = "entries"
    summary = "torn, incomplete, mixed and misplaced entries in the caches of tools that Ondol understands"
    roles = frozenset({CACHE})
    walks = True
    seconds = 120.0

    def run(self, subject: Subject) -> Iterator[Finding]:
        if subject.tool is None or subject.tool.sharing == "E":
            return  # a tool with a protocol of its own looks after its entries itself
        groups: dict[tuple[str, bool], list[Refused]] = {}
        deadline = time.monotonic() + min(subject.bounds.seconds, self.seconds / 2)
        scanned = registry.load(subject.tool).scan(CacheDir(subject.real, ours=False), identity.this_host())
        for looked, item in enumerate(scanned, start=1):
            if isinstance(item, Refused) and item.kind in _KINDS and not _spared(subject, item):
                groups.setdefault((item.kind, "/" in item.place), []).append(item)
            if looked >= subject.bounds.entries or time.monotonic() > deadline:
                what = f"only the first {counted(looked)} of {subject.path} were checked"
                yield Finding(self.name, NOTE, what, look(subject.path), "a fault beyond is not in this report")
                break
        for (kind, _), items in groups.items():
            yield self._finding(subject, kind, items)

    def _finding(self, subject: Subject, kind: str, items: list[Refused]) -> Finding:
        severity, why = _judge(subject, items[0])
        places = list(dict.fromkeys(_entry(subject, item) for item in items))
        what = f"{plural(len(items), f'{kind} entry', f'{kind} entries')} in {subject.path}: {items[0].why}"
        fix = f"rm -r {commands.paths(places[:_MOST])}"
        where = look(os.path.join(subject.real, items[0].place))
        if subject.machine.uid not in (0, where.owner):
            fix = commands.as_root(subject.machine.uid, fix)
        return Finding(self.name, severity, what, where, why, "" if kind == "unknown" else fix, len(items))


def _entry(subject: Subject, item: Refused) -> str:
    """What to remove so that the tool makes it anew: what was refused. For Triton all of its key directory."""
    is_triton = subject.tool is not None and subject.tool.name == "triton"
    return os.path.join(subject.real, item.place.split("/")[0] if is_triton else item.place)


def _judge(subject: Subject, item: Refused) -> tuple[str, str]:
    if subject.tool is None or subject.tool.name != "triton" or item.kind not in ("torn", "incomplete"):
        return _KINDS[item.kind]
    if item.kind == "torn":
        return ERROR, "Triton takes it for a hit, and the job fails when it is loaded (device kernel image is invalid)"
    if "/" not in item.place:
        return NOTE, "a compile that failed or was cut off; Triton makes it again"
    found = installed.find(("triton",), subject.machine.env)
    old = [one.version for one in found if versions.release(one.version) <= versions.TRITON_LAST_TO_CRASH]
    if old:
        return ERROR, f"Triton {old[0]}, which is installed, ends with `KeyError: Unknown key` on it"
    return WARNING, "Triton up to 3.7.1 ends with `KeyError: Unknown key` on it; later ones compile again"


def _spared(subject: Subject, item: Refused) -> bool:
    """A store is no broken entry, nor is a directory with one in it: whoever removed it would lose the store."""
    return subject.tree.holds_store(item.place.split("/")[0]) or _in_the_making(subject, item)


def _in_the_making(subject: Subject, item: Refused) -> bool:
    if item.kind != "incomplete":
        return False
    try:
        changed = os.lstat(_entry(subject, item)).st_mtime
    except OSError:
        return True  # gone while we looked
    return time.time() - changed < _SETTLED
