"""Where ranks that share a room meet: a small directory beside the rooms, with a lock and the room's name in it.

<base>/ondol-meet-<uid>-<digest of the key>/   mode 0700
    lock     held while somebody comes in (the first one fills, the others wait), or goes out
    room     which room, and what is in it; only while there is one

The lock is the kernel's and belongs to a process: whoever is killed lets go of it, also with helpers of it still about.
On any doubt there is no meeting, and a rank has a room of its own, as without this.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

from ondol.errors import RoomError
from ondol.host import files, process, records

_PREFIX = "ondol-meet-"
_LOCK = "lock"
_ROOM = "room"
_MAX_BYTES = 256 << 20
_PAUSE = 0.01


class Meeting:
    """The lock, held. Use it as a context manager; letting go of it twice is fine."""

    def __init__(self, folder: str, here: int, lock: int) -> None:
        self._folder = folder
        self._here = here
        self._lock = lock

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        files.close_quietly(self._lock)
        files.close_quietly(self._here)

    def found(self) -> dict[str, Any] | None:
        """What the first one announced, if it or another one is still in that room."""
        try:
            fields = records.real(json.loads(files.read_regular(_ROOM, _MAX_BYTES, dir_fd=self._here)[0]))
            alive = any(not process.certainly_dead(owner) for owner in members(fields["path"]).values())
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return dict(fields) if alive else None

    def announce(self, fields: dict[str, Any]) -> None:
        files.unlink_quietly(_ROOM, dir_fd=self._here)
        files.write_new(_ROOM, json.dumps(records.plain(fields)).encode(), 0o600, dir_fd=self._here, sync=False)

    def disband(self) -> None:
        """Whoever comes now meets anew; whoever waits for the lock finds the directory gone, and tries again."""
        for name in (_ROOM, _LOCK):
            files.unlink_quietly(name, dir_fd=self._here)
        try:
            os.rmdir(self._folder)
        except OSError:
            return


def meet(base: str, digest: str, seconds: float) -> Meeting:
    """Hold the lock of this meeting. Raises `RoomError` if that cannot be, or not in this time."""
    folder = os.path.join(base, f"{_PREFIX}{os.geteuid()}-{digest}")
    deadline = time.monotonic() + seconds
    while True:
        try:
            here = files.make_dir(folder, 0o700)
        except OSError as error:
            # Another rank that looked for abandoned places took the new, empty one for such, and away.
            if isinstance(error, FileNotFoundError) and os.path.isdir(base):
                continue
            raise RoomError(f"cannot meet in {folder}", because=error.strerror or str(error))
        try:
            meeting = _locked(folder, here, deadline)
        except BaseException:
            files.close_quietly(here)
            raise
        if meeting:
            return meeting
        files.close_quietly(here)


def _locked(folder: str, here: int, deadline: float) -> Meeting | None:
    """None if the directory went away while we waited: then there is a new one, or none."""
    status = os.fstat(here)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise RoomError(f"{folder} is not ours alone", because=f"owner {status.st_uid}: somebody planted it")
    try:
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=here)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RoomError(f"cannot lock {folder}", because=error.strerror or str(error))
    try:
        _wait_for(lock, folder, deadline)
        if _is_still(folder, status) and os.fstat(lock).st_nlink:
            return Meeting(folder, here, lock)
    except BaseException:
        files.close_quietly(lock)
        raise
    files.close_quietly(lock)
    return None


def _wait_for(lock: int, folder: str, deadline: float) -> None:
    while True:
        try:
            # Not flock: a helper that outlives its killed parent would hold that for it.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RoomError(f"{folder} is held by another rank", because="it did not finish filling in time")
        except OSError as error:
            raise RoomError(f"cannot lock {folder}", because=error.strerror or str(error))
        time.sleep(_PAUSE)


def _is_still(folder: str, status: os.stat_result) -> bool:
    try:
        now = os.stat(folder, follow_symlinks=False)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino)


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
    """Everybody who signed in and not out. Raises `OSError` if there is no such room."""
    found = {}
    folder = os.path.join(room, "members")
    for name in os.listdir(folder):
        owner = process.Owner.decode(files.read_regular(os.path.join(folder, name), 4096)[0])
        if owner:
            found[name] = owner
    return found
