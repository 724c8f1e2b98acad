"""The contract between Ondol and a tool whose cache it understands. One file per tool; `table` has a row for each.

A tool module says what its cache is made of. It never touches the store, the network or the user's process, and it
never writes: files are read through the `CacheDir` it is handed and turned from path-bound to path-free and back as
bytes. `ondol.testing.tool_suite` holds every tool to this page, ours and those of other packages.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple, Protocol

from ondol.errors import EntryRefused
from ondol.host import accelerator, files
from ondol.host.identity import Host
from ondol.tools.table import Row

#: For entries that depend on nothing but what their own key covers.
ANYWHERE = "any"
#: Begins the fingerprint of a choice that was measured (autotuning). It holds for one driver and one kind of device,
#: and it fixes what is chosen: a job takes and gives such entries only if it wants them, a performance job never.
TUNED = "tuned-"
MAX_FILE_BYTES = 1 << 30
#: Of a file that is parsed: what tools write has kilobytes, and parsing costs twenty times its size.
MAX_METADATA_BYTES = 4 << 20
MAX_DEPTH = 8


def tuned_here() -> str:
    """The fingerprint of a choice that was measured on this machine; empty where driver or devices cannot be named."""
    name = accelerator.here().name
    return TUNED + name if name else ""


class Found(NamedTuple):
    """A complete entry in a cache directory, not yet read."""

    key: str
    fingerprint: str
    #: The directory it lies in, relative to the cache directory; empty for the cache directory itself.
    folder: str
    #: Its files, relative to `folder`.
    names: tuple[str, ...]
    title: str
    #: What making it cost, as far as its files tell.
    seconds: float
    #: The tool's own manifest, or the way in which it writes, says that it is whole as soon as it is there.
    #: Else a writer that was killed may have left half of a file.
    sealed: bool = False

    @property
    def place(self) -> str:
        """For people: where it is, relative to the cache directory."""
        return self.folder or self.names[0]


class Refused(NamedTuple):
    """Something in a cache directory that must not travel."""

    #: incomplete, torn, mixed, outside, unreadable, unknown
    kind: str
    #: Relative to the cache directory.
    place: str
    why: str


class Settled(NamedTuple):
    """An entry's files as they must be in this room."""

    contents: Mapping[str, bytes | memoryview]
    #: Modification times in nanoseconds, for tools that compare them; a file without one has that of its writing.
    times: Mapping[str, int] = {}


class CacheDir:
    """A cache directory as a tool module may see it: plain files only, no links followed.

    Whoever wrote in it may still be at work and may wish us ill, so every look is taken level by level from an open
    directory: a folder that is swapped for a link, to somebody's home or to a dead server, is a refusal.
    """

    def __init__(self, path: str, *, ours: bool, seen_as: str = "", below: str = "") -> None:
        self.path = path
        #: True for a room's cache, written under our eyes; False for one that is adopted from elsewhere, whose times
        #: and absolute paths may come from other machines.
        self.ours = ours
        #: Its path for the program that wrote in it: another one across a container's wall.
        self.seen_as = seen_as or path
        #: The part of `path` that nobody else can change, and the rest of it.
        self._below = below or path
        self._rest = path[len(self._below) + 1 :]
        self._since = 0.0
        self._flags = 0

    def recent(self, since: float) -> CacheDir:
        """The same without folders that have not changed since then, and read without leaving a time of access.

        That is: a folder with no folders in it, in which no file was made. Elsewhere old files are seen too.
        """
        other = copy(self)
        other._since, other._flags = since, getattr(os, "O_NOATIME", 0)
        return other

    def _is_old(self, entry: os.DirEntry[str]) -> bool:
        if not self._since:
            return False
        status = entry.stat(follow_symlinks=False)
        return status.st_nlink == 2 and status.st_mtime < self._since

    def _open(self, folder: str) -> int:
        with files.opened(os.open(self._below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
            return files.open_below(top, "/".join(part for part in (self._rest, folder) if part))

    @contextmanager
    def _beside(self, folder: str, name: str) -> Iterator[tuple[int, str]]:
        """The open directory of a file, whose name may lead through further folders, and its name there."""
        above, _, last = name.rpartition("/")
        with files.opened(self._open("/".join(part for part in (folder, above) if part))) as here:
            yield here, last

    def is_empty(self) -> bool:
        """Also if it is gone, or is no directory any more."""
        try:
            with files.opened(self._open("")) as here, os.scandir(here) as entries:
                return next(entries, None) is None
        except OSError:
            return True

    def folders(self, folder: str = "") -> list[str]:
        with files.opened(self._open(folder)) as here, os.scandir(here) as entries:
            there = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            return sorted(entry.name for entry in there if not self._is_old(entry))

    def listing(self, folder: str) -> dict[str, os.stat_result]:
        """The plain files in a folder. Raises `OSError` if it cannot be read."""
        found: dict[str, os.stat_result] = {}
        with files.opened(self._open(folder)) as here, os.scandir(here) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = status
        return found

    def tree(self, folder: str = "") -> Iterator[tuple[str, dict[str, os.stat_result] | OSError]]:
        """Every directory from `folder` on, relative to the cache: (directory, its files or its refusal)."""
        try:
            listing, below = self.listing(folder), self.folders(folder)
        except OSError as error:
            yield folder, error
            return
        yield folder, listing
        if folder.count("/") >= MAX_DEPTH:
            return  # no tool nests so deep: a trap, or somebody's home directory
        for name in below:
            yield from self.tree(f"{folder}/{name}" if folder else name)

    def last_change(self) -> float:
        """When anything in it was written last, in seconds since the epoch; 0 if there is nothing."""
        listings = [listing for _, listing in self.tree() if isinstance(listing, dict)]
        return max((status.st_mtime for listing in listings for status in listing.values()), default=0.0)

    def status(self, folder: str, name: str) -> os.stat_result:
        with self._beside(folder, name) as (here, last):
            return os.stat(last, dir_fd=here, follow_symlinks=False)

    def read(self, folder: str, name: str) -> bytes:
        return self.read_with_status(folder, name)[0]

    def read_metadata(self, folder: str, name: str) -> bytes:
        """A file that will be parsed. Raises `EntryRefused` if it is larger than any tool writes it."""
        try:
            return self.read_with_status(folder, name, MAX_METADATA_BYTES)[0]
        except files.TooLarge:
            raise EntryRefused(f"{name} has more than {MAX_METADATA_BYTES} bytes", because="unfit")

    def read_with_status(self, folder: str, name: str, limit: int = MAX_FILE_BYTES) -> tuple[bytes, os.stat_result]:
        """The file, and whose it is: of the very descriptor that it was read from."""
        with self._beside(folder, name) as (here, last):
            return files.read_regular(last, limit, dir_fd=here, flags=self._flags)

    def search(self, folder: str, name: str, pattern: re.Pattern[bytes]) -> bytes:
        """What the first group of a pattern, for at most 1 KiB, matches in a large file; empty if nothing does."""
        last = b""
        with self._beside(folder, name) as (here, file):
            # Not mapped: a process of the job that still cuts the file must not be the end of us.
            for piece in files.pieces_of(file, here, self._flags):
                found = pattern.search(last + piece)
                if found:
                    return found.group(1)
                last = piece[-1024:]
        return b""


def refused(place: str, error: EntryRefused | OSError) -> Refused:
    """Something that turned out, when it was looked at, to be none of ours, or not to be read."""
    if isinstance(error, EntryRefused):
        return Refused(error.because or "torn", place, error.what)
    return Refused("unreadable", place, error.strerror or str(error))


class Tool(Protocol):
    """A program whose cache we understand. What most have in common is written out; subclasses state the rest."""

    #: What the table says about it.
    row: Row
    #: Some of its entries cannot lie in one cache together: versions of one build, states of one file. Their keys end
    #: in `@` and a digest (see `version_of`); those that differ in nothing else take turns, the newest first.
    versioned: bool = False

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        """Split a cache directory into entries and what must be left behind. Temporary files are neither."""

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        """A file's path-free form. Raises `EntryRefused` if it is torn, or bound to a place outside the cache."""

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        """The file as it must read in the absolute directory `folder`; `EntryRefused` if it names anything else."""

    def witness(self, names: tuple[str, ...]) -> str:
        """The file that the tool surely reads when it uses the entry."""

    def accepts(self, fingerprint: str, host: Host) -> bool:
        """Whether entries of this fingerprint can work here."""

    def made_by(self, contents: Mapping[str, bytes]) -> str:
        """The version of the tool that made an entry, from its own files; empty if they do not say."""
        del contents
        return ""

    def folder(self, key: str) -> str:
        """The directory of an entry, relative to the cache directory."""
        del key
        return ""

    def settle(self, contents: Mapping[str, bytes | memoryview], folder: str) -> Settled:
        """All files of an entry at once, as they must be in the absolute directory `folder`.

        For a tool whose entries are right only beside other files (sources, headers, a compiler), or at certain times.
        Raises `EntryUnfit` if what the entry was made from is not the same here, `EntryRefused` as `attach` does.
        """
        names = tuple(contents)
        return Settled({name: self.attach(name, data, names, folder) for name, data in contents.items()})


def version_of(key: str) -> str:
    """The key without the digest behind its `@`: what versions of one thing have in common."""
    return key.rpartition("@")[0] or key
