"""flock(2) on an open file or directory, as a part of the lock on a cache.

A flock belongs to the open file, so it ends when its descriptor is closed: by us, or by the kernel when we are killed.
Every error other than "somebody has it" means that there are no locks here; docs/design/locks.md lists which errors
were seen where. Nothing in this module waits.
"""

import errno
import fcntl
import os

from ondol.errors import OndolError
from ondol.guard.lock_place import LockPlace, open_place
from ondol.host import bounded, files

#: A lock service that is away lets a process hang in the kernel; a network lock that takes longer is no lock.
ANSWER = 10.0
#: How a kernel says that a file system has no locks. ENOTSUPP is its own number, which NFS servers without a lock
#: manager let through: C libraries have no name for it, so that no program that tests for ENOTSUP or ENOLCK finds it.
_NO_LOCKS = {524: "ENOTSUPP 524", errno.ENOSYS: "ENOSYS", errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EINVAL: "EINVAL"}


def reason(error: OSError) -> str:
    if error.errno in _NO_LOCKS:
        return f"the file system has no locks ({_NO_LOCKS[error.errno]})"
    return error.strerror or str(error)


def flock(fd: int, shared: bool) -> bool:
    """Whether we have it now. Works on directories too, on local file systems. Raises `OSError` where it does not."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FlockPart:
    """On the cache itself: the same for every user, path and container, with nothing to create or clean. Or on a file.

    `distant`: on a file system whose locks may hang.
    """

    kind = "flock"

    def __init__(self, where: str, place: LockPlace | None = None, *, distant: bool = False) -> None:
        self.where = where
        self._place = place
        self._distant = distant
        self._fd = -1

    def open(self) -> None:
        """Raises `OSError`, as `attempt` does."""
        directory = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._fd = open_place(self._place) if self._place else os.open(self.where, directory)

    def attempt(self, shared: bool) -> bool:
        """Take it if that is possible now."""
        if self._fd < 0:
            self.open()
        if not self._ask(shared):
            return False
        if _same(self._fd, self.where):
            return True
        # `uv cache clean` removed the directory, `uv cache prune` the file: a newcomer would lock another one.
        self.release()
        if not self._place:
            os.makedirs(self.where, exist_ok=True)
        return False

    def _ask(self, shared: bool) -> bool:
        if not self._distant:
            return flock(self._fd, shared)
        # In a child: the lock belongs to the open file, which we share, and a child that hangs can be left behind.
        try:
            return bool(bounded.call(lambda _: _answer(self._fd, shared), ANSWER))
        except OndolError as error:
            raise OSError(0, error.line())

    def release(self) -> bool:
        files.close_quietly(self._fd)
        self._fd = -1
        return True


def _answer(fd: int, shared: bool) -> bool:
    try:
        return flock(fd, shared)
    except OSError as error:
        raise OndolError(reason(error))


def _same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False
