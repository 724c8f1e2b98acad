"""Fill a room from a store: fetch, verify, unpack, bind to the room's path. Whatever goes wrong with an entry is a
miss.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ondol.errors import EntryRefused, EntryUnfit, EntryUntrusted, PackError
from ondol.host import bounded, files
from ondol.store import pack
from ondol.store.api import Backend, Stored
from ondol.store.entry import Address, Entry, File
from ondol.tools.api import CacheDir, Settled, Tool

#: Names that this file system does not take, or that are in another entry's way: no reason to stop for the others.
_THE_ENTRYS_FAULT = frozenset(
    {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY}
)


class Filled(NamedTuple):
    """One entry that now lies in the room."""

    address: Address
    #: The file whose access time tells whether the entry was used, and its inode, which tells whether it was replaced.
    witness: str
    inode: int
    #: The names of its files: what is in the room beside them is new.
    names: tuple[str, ...]
    title: str
    seconds: float
    raw_bytes: int
    #: The time that its witness was given, if one was: some linkers write a new file under the old inode.
    modified: int | None = None
    #: Who vouches for it: the owner of its pack, the pack's digest, and the key that signed it, if one did.
    owner: int = -1
    digest: str = ""
    signer: str = ""


class BadPack(NamedTuple):
    """A pack that claimed to be an entry and was not; or, with what to type, a whole one that must not be used."""

    place: str
    why: str
    set_aside: bool
    fix: str = ""


class TooLate(Exception):
    """The tool was faster: it has begun to make the entry itself, and nothing of ours may be mixed with that."""


class FillResult(NamedTuple):
    """What a store gave for one tool."""

    filled: tuple[Filled, ...] = ()
    bad: tuple[BadPack, ...] = ()
    #: Set if the room's own disk refused: the rest was not tried.
    stopped: str = ""
    #: Why entries that are in the store are not for this machine, one for each.
    unfit: tuple[str, ...] = ()
    #: Entries that `fill-max` leaves out, and that this job's wishes do.
    left_out: int = 0
    untuned: int = 0
    #: More is filled beside the command.
    later: bool = False

    def __add__(self, other: FillResult) -> FillResult:  # type: ignore[override]
        stopped, unfit = self.stopped or other.stopped, self.unfit + other.unfit
        return self._replace(filled=self.filled + other.filled, bad=self.bad + other.bad, stopped=stopped, unfit=unfit)


def fill(
    backend: Backend,
    tool: Tool,
    wanted: Sequence[list[Stored]],
    cache: CacheDir,
    stage: str,
    progress: Callable[[int, int], None],
    processes: int,
    seconds: float,
) -> FillResult:
    """Unpack the wanted entries, in several processes if that is worth it. They are bound to `cache.seen_as`."""

    def work(piece: Sequence[list[Stored]]) -> FillResult:
        return fill_piece(backend, tool, piece, cache, stage)

    parts = bounded.in_pieces(wanted, work, processes, seconds, progress, lambda part: bool(part.stopped))
    return sum(parts, FillResult())


def fill_piece(
    backend: Backend, tool: Tool, piece: Sequence[list[Stored]], cache: CacheDir, stage: str, *, late: bool = False
) -> FillResult:
    """`late`: the command is at work there."""
    filled: list[Filled] = []
    bad: list[BadPack] = []
    unfit: list[str] = []
    stopped = ""
    for copies in piece:
        try:
            done = _fill_one(backend, tool, copies, cache, stage, bad, late)
        except TooLate:
            continue
        except EntryUnfit as error:
            unfit.append(error.line())
            continue
        except OSError as error:
            if error.errno in _THE_ENTRYS_FAULT:
                unfit.append(f"{copies[0].address.key}: {error.strerror}")
                continue
            stopped = f"{error.strerror or error} in {cache.path}"
            break
        if done:
            filled.append(done)
    return FillResult(tuple(filled), tuple(bad), stopped, tuple(unfit))


def _fill_one(
    backend: Backend,
    tool: Tool,
    copies: list[Stored],
    cache: CacheDir,
    stage: str,
    bad: list[BadPack],
    late: bool,
) -> Filled | None:
    """Try each copy until one is good. `OSError` from here on means the room, never the store.

    Raises `EntryUnfit` if there were good ones and none was for this machine.
    """
    unfit: EntryUnfit | None = None
    for stored in copies:
        try:
            manifest, contents = pack.open_pack(backend.fetch(stored), stored.address)
            backend.vet(stored, manifest)
            entry = pack.entry_of(manifest, contents)
            settled = bind(tool, entry, cache)
        except OSError:
            continue  # gone or unreadable: a miss
        except EntryUnfit as error:
            unfit = unfit or error
            continue
        except EntryUntrusted as error:
            bad.append(BadPack(stored.place, error.what, False, error.hint))
            continue
        except (PackError, EntryRefused) as error:
            bad.append(BadPack(f"{stored.place}/{'/'.join(stored.address)}", error.line(), backend.set_aside(stored)))
            continue
        done = unpack(tool, entry, settled, cache, stage, late=late)
        return done._replace(owner=stored.owner, digest=manifest.digest.hex(), signer=manifest.signer)
    if unfit:
        raise unfit
    return None


def bind(tool: Tool, entry: Entry, cache: CacheDir) -> Settled:
    """The entry's files as they must be in this room."""
    return tool.settle({file.name: file.data for file in entry.files}, _folder(tool, entry, cache.seen_as))


def _folder(tool: Tool, entry: Entry, cache_dir: str) -> str:
    inside = tool.folder(entry.address.key)
    return os.path.join(cache_dir, inside) if inside else cache_dir


def unpack(tool: Tool, entry: Entry, settled: Settled, cache: CacheDir, stage: str, *, late: bool = False) -> Filled:
    """Write the files aside and move them into the cache in one step: a fill that is cut off leaves no half entry.

    `late`: raises `TooLate` if the tool has made, or begun to make, any of it.
    """
    aside = os.path.join(stage, files.random_name())
    names = tuple(file.name for file in entry.files)
    witness = tool.witness(names)
    # The witness last, as the tool itself writes it: for the harvest, and for a reader, it means "finished".
    ordered = sorted(entry.files, key=lambda file: file.name == witness)
    folder = _folder(tool, entry, cache.path)
    os.mkdir(aside, 0o755)
    try:
        inode = _write_files(aside, ordered, settled)
        _move_in(aside, folder, [file.name for file in ordered], whole=folder != cache.path, late=late)
    except BaseException as error:
        files.remove_tree(aside)
        if late and isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise TooLate
        raise
    place, modified = os.path.join(folder, witness), settled.times.get(witness)
    return Filled(entry.address, place, inode, names, entry.title, entry.seconds, entry.raw_bytes, modified)


def _write_files(aside: str, ordered: Sequence[File], settled: Settled) -> int:
    """Write the files below a fresh directory, the witness last; returns the witness' inode."""
    # Relative to a descriptor: for eight files an entry, walking the room's long path is a tenth of the work.
    with files.opened(files.open_dir(aside)) as here:
        for file in ordered:
            _make_parents(aside, file.name)
            fd = os.open(file.name, files.CREATE, 0o755 if file.executable else 0o644, dir_fd=here)
            try:
                files.write_all(fd, settled.contents[file.name])
                status = os.fstat(fd)
                if file is ordered[-1] or file.name in settled.times:
                    # Access time 0, which matters for the witness: with relatime, any read will move it.
                    os.utime(fd, ns=(0, settled.times.get(file.name, status.st_mtime_ns)))
            finally:
                os.close(fd)  # not quietly: on NFS a full disk or quota may show only here
        return status.st_ino


def _make_parents(above: str, name: str) -> None:
    if "/" in name:
        os.makedirs(os.path.join(above, os.path.dirname(name)), exist_ok=True)


def _move_in(aside: str, folder: str, names: Sequence[str], *, whole: bool, late: bool) -> None:
    """In one step where that is possible; else file by file in this order, so that the witness arrives last.

    `late`: never over anything.
    """
    if whole:
        if late and os.path.lexists(folder):
            raise TooLate
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.rename(aside, folder)
            return
        except OSError:
            if late:
                raise
            # Another entry shares the directory (a helper built for two Pythons).
    os.makedirs(folder, exist_ok=True)
    for name in names:
        _make_parents(folder, name)
        move = os.link if late else os.rename
        move(os.path.join(aside, name), os.path.join(folder, name))
    files.remove_tree(aside)
