"""The caches of all tools whose files we understand: what their own module calls torn must go, and nothing else.

An entry that is only incomplete may be one that somebody is writing at this moment, so it stays. A file that is torn
under its final name is never in the making: every tool here renames a file into its place when it is whole, or would
read the torn one again and again.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ondol.errors import EntryRefused
from ondol.guard.healer import BadEntry, Healer, Progress
from ondol.host import identity
from ondol.tools import registry, table
from ondol.tools.api import CacheDir, Found, Refused, Tool
from ondol.tools.table import Row


class ToolCache(Healer):
    def __init__(self, row: Row) -> None:
        self._row = row
        self.name = row.name

    def recognises(self, cache: str) -> bool:
        return any(isinstance(item, Found) or item.kind == "torn" for item in self._scan(cache))

    def examine(self, cache: str, progress: Progress) -> Iterator[BadEntry]:
        tool, items = registry.load(self._row), list(self._scan(cache))
        for number, item in enumerate(items):
            progress(number, len(items))
            if isinstance(item, Found):
                yield from _torn_files(tool, CacheDir(cache, ours=False), item)
            elif item.kind == "torn":
                yield BadEntry(os.path.join(cache, item.place), item.why)

    def _scan(self, cache: str) -> Iterator[Found | Refused]:
        with suppress(OSError):  # not there, or not readable: nothing that we could mend
            yield from registry.load(self._row).scan(CacheDir(cache, ours=False), identity.this_host())

    def usual_place(self, env: Mapping[str, str]) -> str:
        return table.default_location(self._row, env)


def _torn_files(tool: Tool, cache: CacheDir, found: Found) -> Iterator[BadEntry]:
    """The files of an entry that turn out torn when they are read; the file that leads to them goes first."""
    for name in found.names:
        try:
            tool.detach(found, name, cache.read(found.folder, name), cache)
        except EntryRefused as refusal:
            if refusal.because == "torn":
                leads = tool.witness(found.names)
                pointers = (os.path.join(cache.path, found.folder, leads),) if leads != name else ()
                yield BadEntry(os.path.join(cache.path, found.folder, name), refusal.what, pointers)
        except OSError:
            continue  # gone at this moment, or another user's
