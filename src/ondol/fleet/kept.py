"""The journals of past runs: in the user's state directory, or in one that many users and machines share.

Written as entries of a store are: each run is one new file, whole under its name or not there, and never changed, so
there is nothing to lock. Who may be believed is judged by the owner of each open file, by whoever reads. In a shared
directory everybody removes what is too old of his own files only.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ondol.errors import OndolError
from ondol.fleet import kept_file, past
from ondol.fleet.record import of_bytes
from ondol.host import files, identity
from ondol.host.zstd import ZstdError

#: How long they are kept, how many, and how many bytes altogether; of one user.
LONGEST, MOST, LARGEST = 90 * 86400.0, 1000, 2 << 30
#: What readers look at in a shared directory: names, and files of those that they believe, the newest first.
_NAMES, READ_MOST = 20_000, 1000
_LARGEST_FILE = 256 << 20
_NAME = re.compile(r"\d{8}-\d{10}-[0-9a-f]{12}")
_LAST_LINE = re.compile(rb'\{"t": [\d.e+-]+, "e": "over"')
_ROOM = re.compile(rb'\{"t": [\d.e+-]+, "e": "room"')
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder() -> str:
    return os.path.join(identity.user_state_dir(), "ondol", "history")


def keep(journal: Path, where: str = "") -> str:
    """Keep the last run in this journal; returns what is wrong, in words, for this never fails a run."""
    try:
        data = last_run(journal)
        if not data:
            return ""
        record = of_bytes(data)
        if not record.items:
            return ""  # nothing was run: help was asked for, or no test was found
        name = _name(record.first, data)
        line = past.to_line(past.of_record(record, name, os.uname().nodename))
        _write(where, name + kept_file.SUFFIX, kept_file.pack(line, data))
    except (OSError, OndolError, ZstdError, ValueError, LookupError, TypeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        fix = "--history DIR, one that you can write"
        return f"this run is not in the history in {where or folder()}: {why} (fix: {fix})"
    return ""


def last_run(journal: Path) -> bytes:
    """A file may hold several runs; what follows a run's last line is the next one's, except the story of its room."""
    with open(journal, "rb") as file:
        if os.fstat(file.fileno()).st_size > kept_file.LONGEST:
            raise OSError(27, f"the journal is larger than {kept_file.LONGEST >> 20} MiB")
        lines = file.read().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if _LAST_LINE.match(line)]
    starts = [0, *(end + 1 + (len(lines) > end + 1 and bool(_ROOM.match(lines[end + 1]))) for end in ends)]
    begin = [start for start in starts if start < len(lines)]
    return b"".join(lines[begin[-1] :]) if begin else b""


def _name(first: float, data: bytes) -> str:
    """By time, down to what a journal tells, and unique."""
    second = time.strftime("%Y%m%d-%H%M%S", time.gmtime(first))
    return f"{second}{int(first % 1 * 10_000):04d}-{hashlib.sha256(data).hexdigest()[:12]}"


def _write(where: str, name: str, data: bytes) -> None:
    """Where others look too, everybody may read it: who names such a directory shares what his tests print."""
    if where:
        os.makedirs(where, mode=0o700, exist_ok=True)
        here = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    else:
        os.makedirs(os.path.dirname(folder()), mode=0o700, exist_ok=True)
        here = files.open_private(folder(), make=True)
    temporary = f".{files.random_name()}"
    try:
        files.write_new(temporary, data, 0o644 if where else 0o600, here, sync=True)
        files.link_new(temporary, here, name, here)
        _clean(here, time.time(), dry_run=False)
    finally:
        files.unlink_quietly(temporary, dir_fd=here)
        os.close(here)


def clean(now: float, where: str = "", *, dry_run: bool = False) -> list[str]:
    """Remove what is too old, too many or too much of ours; returns what it was."""
    here = _open(where)
    if here is None:
        return []
    try:
        return [os.path.join(where or folder(), name) for name in _clean(here, now, dry_run=dry_run)]
    finally:
        os.close(here)


def _clean(here: int, now: float, *, dry_run: bool) -> list[str]:
    gone, number, size = [], 0, 0
    for name, status in _there(here):
        if status.st_uid != os.geteuid():
            continue
        number, size = number + 1, size + status.st_size
        if now - status.st_mtime > LONGEST or number > MOST or size > LARGEST:
            gone.append(name)
            if not dry_run:
                files.unlink_quietly(name, dir_fd=here)
    return gone


def _there(here: int) -> Iterator[tuple[str, os.stat_result]]:
    """The newest first, by their names: those of a shared directory come from many clocks."""
    with os.scandir(here) as entries:
        names = [entry.name for _, entry in zip(range(_NAMES), entries, strict=False)]
    for name in sorted(names, reverse=True):
        if name.endswith(kept_file.SUFFIX) and _NAME.fullmatch(name.removesuffix(kept_file.SUFFIX)):
            try:
                yield name, os.stat(name, dir_fd=here, follow_symlinks=False)
            except OSError:
                continue  # somebody cleans at this moment


Believes = Callable[[int], bool]


def ours(owner: int) -> bool:
    """The least: our own and root's."""
    return owner in (0, os.geteuid())


def runs(where: str = "", believes: Believes = ours) -> tuple[list[past.PastRun], int]:
    """What past runs tell, the oldest first, and how many files were passed over."""
    found = list(_newest_first(where, believes))
    known = [run for run in found if run]
    return known[::-1], len(found) - len(known)


def _newest_first(where: str, believes: Believes) -> Iterator[past.PastRun | None]:
    here, read = _open(where), 0
    if here is None:
        return
    try:
        for name, status in _there(here):
            run = _read(here, name, believes) if believes(status.st_uid) else None
            yield run
            read += run is not None
            if read >= READ_MOST:
                return
    finally:
        os.close(here)


def _open(where: str) -> int | None:
    """None if there is nothing yet."""
    try:
        return os.open(where or folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        path = where or folder()
        raise OndolError(f"the history in {path} cannot be read", because=error.strerror or "", hint="--history DIR")


def _read(here: int, name: str, believes: Believes) -> past.PastRun | None:
    """The first line of a file that one believed user alone can write."""
    try:
        fd = os.open(name, files.READ, dir_fd=here)
        try:
            status = os.fstat(fd)
            plain = stat.S_ISREG(status.st_mode) and not status.st_mode & _OTHERS_CAN_WRITE
            if not plain or not believes(status.st_uid):
                return None
            head = os.read(fd, kept_file.HEAD)
            wanted = min(kept_file.enough(head), kept_file.LONGEST_LINE, status.st_size)
            line = kept_file.line_of(os.pread(fd, wanted, 0))
        finally:
            os.close(fd)
        return past.from_line(line, name.removesuffix(kept_file.SUFFIX))
    except (OSError, ZstdError, kept_file.NotKept):
        return None


def find(name: str, where: str = "", believes: Believes = ours) -> Path | None:
    """The file of the run of this name, or of the only one whose name begins so."""
    here = _open(where)
    if here is None:
        return None
    try:
        meant = [one for one, status in _there(here) if one.startswith(name) and believes(status.st_uid)]
    finally:
        os.close(here)
    return Path(where or folder()) / meant[0] if len(meant) == 1 else None


def latest(where: str = "", believes: Believes = ours, root: str = "") -> Path | None:
    """The newest run; with `root`, of this project's if there is one."""
    newest = None
    for run in _newest_first(where, believes):
        newest = newest or run
        if run and root in ("", run.root):
            newest = run
            break
    return Path(where or folder()) / (newest.name + kept_file.SUFFIX) if newest else None
