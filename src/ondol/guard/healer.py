"""The contract between healing and a family of caches. One file per family; `healing` lists them.

A healer looks and says what it found; it never changes anything. `set_aside` does that, for all families alike, by
renaming. What a healer calls bad is taken out of the cache, so it must have evidence in the cache itself: a checksum, a
length, a pointer to nothing, a refusal of the kernel. What it does not understand (another version's layout) is good.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

#: Called with (done, total) while a healer works.
Progress = Callable[[int, int], None]


class BadEntry(NamedTuple):
    """Something that must go, alone or with what leads to it."""

    #: The file or directory, absolute.
    path: str
    #: What was found, for people: `METADATA is missing`.
    why: str
    #: Names in the cache that lead to it. They go first, so that nobody is led to where it was.
    pointers: tuple[str, ...] = ()


class Healer:
    """What one family of caches is made of."""

    #: As signatures name it in `heals`.
    name: str
    #: A file in the cache that the tool's own processes hold with flock(2), shared, while they use it; empty if none.
    own_lock = ""
    #: Names at the top of the cache that are not entries and stay when everything else is set aside.
    not_entries: tuple[str, ...] = ()

    def recognises(self, cache: str) -> bool:
        """Whether this directory is such a cache, as far as a look at its names can tell."""
        raise NotImplementedError

    def examine(self, cache: str, progress: Progress) -> Iterator[BadEntry]:
        """Everything bad in it. Reads as much as it must; other processes may be using the cache meanwhile.

        Never raises for what it finds: an entry that cannot be read is bad, one that vanishes while we look is not.
        """
        raise NotImplementedError

    def asks(self, argv: Sequence[str]) -> list[str]:
        """If `argv` runs the tool: the command that prints where its cache is. Else empty."""
        del argv
        return []

    def usual_place(self, env: Mapping[str, str]) -> str:
        """Where its cache is if nobody can be asked."""
        raise NotImplementedError


def launched(argv: Sequence[str], name: str) -> list[str]:
    """The words that start a program of this name: `uv`, `/opt/bin/uv`, `python -m uv`; empty if they do not."""
    if not argv:
        return []
    program = os.path.basename(argv[0])
    if re.fullmatch(rf"{name}[\d.]*", program):
        return [argv[0]]
    if re.fullmatch(r"python[\d.]*", program) and list(argv[1:3]) == ["-m", name]:
        return list(argv[:3])
    return []
