"""The locks that together are the lock on a cache: on the directory itself, on a lock file, or as a lease."""

from __future__ import annotations

import os
from collections.abc import Callable

from ondol.errors import OndolError
from ondol.guard import kernel_locks
from ondol.guard.lease import Lease
from ondol.guard.lock_place import LockPlace, open_place
from ondol.host import bounded, files
from ondol.light import Protocol

#: A lock service that is away lets a process hang in the kernel; a network lock that takes longer is no lock.
ANSWER = 10.0


class LockPart(Protocol):
    kind: str
    where: str

    def attempt(self, shared: bool) -> bool:
        """Take it if that is possible now. Raises `NoLocks`, and `Unusable` if its file cannot even be made."""

    def release(self) -> None: ...

    def note(self) -> bytes:
        """What the present holder says of itself, if it does so in this very lock."""


class _Opened:
    """A lock on an open file. Its holder's note lies elsewhere."""

    _fd = -1

    def release(self) -> None:
        files.close_quietly(self._fd)
        self._fd = -1

    def note(self) -> bytes:
        return b""


class DirectoryPart(_Opened):
    """The directory is its own lock: the same for every user, path and container, with nothing to create or clean."""

    kind = "flock"

    def __init__(self, cache: str) -> None:
        self.where = cache

    def attempt(self, shared: bool) -> bool:
        try:
            if self._fd < 0:
                self._fd = os.open(self.where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            got = kernel_locks.by_flock(self._fd, shared)
            if got and not _same(self._fd, self.where):
                # `uv cache clean` removes the directory: what we have locked is nobody's cache any more.
                self.release()
                os.makedirs(self.where, exist_ok=True)
                return False
        except OSError as error:
            raise kernel_locks.NoLocks(error.strerror or str(error))
        return got


class FilePart(_Opened):
    """A lock file. `distant`: on a file system whose locks may hang."""

    def __init__(self, place: LockPlace, *, distant: bool) -> None:
        self.where = place.path
        self.kind = ""
        self._place = place
        self._distant = distant
        self._ways = list(kernel_locks.WAYS)

    def attempt(self, shared: bool) -> bool:
        if self._fd < 0:
            self._fd = open_place(self._place)
        got = self._first_that_works(shared)
        if got and not _same(self._fd, self.where):
            self.release()  # cleaned away before we had it: a newcomer would lock another file
            return False
        return got

    def _first_that_works(self, shared: bool) -> bool:
        reasons = []
        while self._ways:
            self.kind, way = self._ways[0]
            try:
                return self._try(way, shared)
            except kernel_locks.NoLocks as reason:
                reasons.append(f"{self.kind}: {reason}")
                del self._ways[0]
        raise kernel_locks.NoLocks("; ".join(reasons))

    def _try(self, way: kernel_locks.Way, shared: bool) -> bool:
        if not self._distant:
            return way(self._fd, shared)
        # In a child: the lock belongs to the open file, which we share, and a child that hangs can be left behind.
        try:
            answer = bounded.call(lambda _: _answer(way, self._fd, shared), ANSWER)
        except OndolError as error:
            raise kernel_locks.NoLocks(error.line())
        if isinstance(answer, str):
            raise kernel_locks.NoLocks(answer)
        return bool(answer)


def _answer(way: kernel_locks.Way, fd: int, shared: bool) -> bool | str:
    try:
        return way(fd, shared)
    except kernel_locks.NoLocks as reason:
        return str(reason)


class LeasePart:
    """A lease is never shared: those who would share it take turns."""

    kind = "lease"

    def __init__(self, place: LockPlace, note: bytes, lost: Callable[[str], None]) -> None:
        self.where = place.path
        self._lease = Lease(place.path, note)
        self._lost = lost
        self._held = False

    def attempt(self, shared: bool) -> bool:  # noqa: ARG002
        try:
            self._held = self._held or self._lease.attempt()
        except OSError as error:
            raise kernel_locks.NoLocks(error.strerror or str(error))
        return self._held

    def release(self) -> None:
        if self._held and not self._lease.release():
            self._lost(f"warning: the lease {self.where} was lost while this process stood still; others went on")
        self._held = False

    def note(self) -> bytes:
        try:
            return self._lease.note()
        except OSError:
            return b""


def _same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False
