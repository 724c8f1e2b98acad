"""Where ranks that share a room meet: a small file beside the rooms, `ondol-meet-<uid>-<digest of the key>`.

Its lock is held while somebody comes in (the first one fills, the others wait), or goes out; it tells which room, and
what is in it. The lock is the kernel's and belongs to a process: whoever is killed lets go of it, also with helpers of
it still about. On any doubt there is no meeting, and a rank has a room of its own, as without this.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from typing import Any

from ondol.errors import RoomError
from ondol.host import files, process, records

_PREFIX = "ondol-meet-"
_MAX_BYTES = 256 << 20
_PAUSE = 0.01


class Rendezvous:
    """The lock, held. Use it as a context manager; letting go of it twice is fine."""

    def __init__(self, path: str, lock: int) -> None:
        self._path = path
        self._lock = lock

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, *_: object) -> None:
        files.close_quietly(self._lock)

    # Read and written by the one descriptor only: closing any other one of this file would let go of the lock.

    def found(self) -> dict[str, Any] | None:
        """What the first one announced, if it or another one is still in that room."""
        try:
            size = min(os.fstat(self._lock).st_size, _MAX_BYTES)
            fields = records.real(json.loads(os.pread(self._lock, size, 0)))
            alive = any(not process.certainly_dead(owner) for owner in members(fields["path"]).values())
        except (OSError, ValueError, KeyError, TypeError):
            return None  # nobody has been here, or was killed in the middle of a word
        return dict(fields) if alive else None

    def announce(self, fields: dict[str, Any]) -> None:
        os.ftruncate(self._lock, 0)
        files.write_all(self._lock, json.dumps(records.plain(fields)).encode())

    def disband(self) -> None:
        """Whoever comes now meets anew; whoever waits for the lock finds the file gone, and tries again."""
        files.unlink_quietly(self._path)


def meet(base: str, digest: str, seconds: float) -> Rendezvous:
    """Hold the lock of this meeting. Raises `RoomError` if that cannot be, or not in this time."""
    path = os.path.join(base, f"{_PREFIX}{os.geteuid()}-{digest}")
    deadline = time.monotonic() + seconds
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RoomError(f"cannot open {path}, where ranks meet", because=error.strerror or str(error))
        try:
            status = os.fstat(lock)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077 or not stat.S_ISREG(status.st_mode):
                why = f"it belongs to uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
                raise RoomError(f"{path} is not a private file of uid {os.geteuid()}", because=why)
            _wait_for(lock, path, deadline)
            if _is_still(path, status):
                return Rendezvous(path, lock)
        except BaseException:
            files.close_quietly(lock)
            raise
        files.close_quietly(lock)  # disbanded while we waited, or swept before we had the lock


def _wait_for(lock: int, path: str, deadline: float) -> None:
    while True:
        try:
            # Not flock: a helper that outlives its killed parent would hold that for it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RoomError(f"{path} is held by another rank", because="it did not finish filling in time")
        except OSError as error:
            raise RoomError(f"cannot lock {path}", because=error.strerror or str(error))
        time.sleep(_PAUSE)


def _is_still(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), status)
    except OSError:
        return False


def sweep(base: str) -> None:
    """Remove places where nobody meets any more; the lock of one that is in use cannot be had."""
    try:
        names = [name for name in os.listdir(base) if name.startswith(f"{_PREFIX}{os.geteuid()}-")]
    except OSError:
        return
    for name in names:
        try:
            with meet(base, name.rpartition("-")[2], 0.0) as meeting:
                if meeting.found() is None:
                    meeting.disband()
        except RoomError:
            continue


# -- who is in a shared room -------------------------------------------------------------------------------------------


def sign_in(room: str) -> str:
    """Leave a note of us; returns its name."""
    folder = os.path.join(room, "members")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = files.random_name()
    files.write_new(os.path.join(folder, name), process.myself().encode(), 0o600, sync=False)
    return name


def members(room: str) -> dict[str, process.Owner]:
    """Everybody who signed in and not out. Raises `OSError` if there is no such room, or nobody shares it.

    Relative to what was opened: a `members` that is a link leads root to no device of the machine.
    """
    with files.opened(files.open_dir(room)) as here, files.opened(files.open_dir("members", here)) as folder:
        notes = {name: signed(name, folder) for name in os.listdir(folder)}
    return {name: owner for name, owner in notes.items() if owner}


def signed(name: str, folder: int) -> process.Owner | None:
    """Who left this note; nobody if it is gone, or was cut off."""
    try:
        return process.Owner.decode(files.read_regular(name, 4096, dir_fd=folder)[0])
    except FileNotFoundError:
        return None
