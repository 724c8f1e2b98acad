"""What the lock on a cache is made of: the places where its file can be, and flock(2) on such a file or on the cache.

Everybody who uses the cache should come to the same file. So nothing here depends on variables or the working
directory, and the first two places are the same for all users. Each is tried by really opening or creating the file.

A flock belongs to the open file, so it ends when its descriptor is closed: by us, or by the kernel when we are killed.
Every error other than "somebody has it" means that there are no locks here. docs/design/locks.md lists which errors
were seen where, and what users do who cannot agree on a place.
"""

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import NamedTuple

from ondol.errors import OndolError
from ondol.host import bounded, files

#: Names that no tool makes, reads or would take for an entry.
SUFFIX = ".ondol-lock"
_TRIES, _PAUSE = 5, 0.02
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LockPlace(NamedTuple):
    path: str
    #: Whether every user of the cache would come here. If not, it must be a directory that only we control.
    common: bool


def identify(cache: str) -> str:
    """Which directory it is, whatever path leads there; one that does not exist, by the nearest one above it."""
    path, below = cache, ""
    while True:
        try:
            status = os.stat(path)
            break
        except OSError:
            path, name = os.path.split(path)
            below = f"-{name}{below}"
    return f"{status.st_dev:x}-{status.st_ino:x}{''.join(c if c.isalnum() else '-' for c in below)}"[:200]


def candidates(cache: str) -> list[LockPlace]:
    """In order. `cache` is a real path."""
    above, name = os.path.split(cache)
    # A cache that is a mount point (a volume of a container) has something else beside it for everybody.
    beside = [] if os.path.ismount(cache) else [os.path.join(above, f".{name}{SUFFIX}")]
    common = [LockPlace(path, True) for path in (*beside, os.path.join(cache, SUFFIX))]
    return [*common, LockPlace(f"{_private_base()}/ondol-{identify(cache)}.lock", False)]


def _private_base() -> str:
    return f"/tmp/ondol-{os.geteuid()}"


def private_directory(name: str) -> str:
    """A directory of this user's own on this node, the same every time. Raises `OSError` if none can be had."""
    path = os.path.join(_private_base(), name)
    for folder in (_private_base(), path):
        os.close(files.open_private(folder, make=True))
    return path


def open_place(place: LockPlace) -> int:
    """The lock file, open for reading and writing; created if it is not there. Raises `OSError`."""
    if not place.common:
        os.close(files.open_private(os.path.dirname(place.path), make=True))
    fd = _open_or_create(place)
    status = os.fstat(fd)
    # A second name means that somebody put another file of ours here for us to write into.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(fd)
        raise OSError(0, "something else has that name")
    return fd


def _open_or_create(place: LockPlace) -> int:
    refused: OSError | None = None
    for _ in range(_TRIES):  # it may appear, open up, or be cleaned away, between two calls
        try:
            # Without O_CREAT: in a sticky directory the kernel refuses that for other users' files.
            return os.open(place.path, _OPEN)
        except FileNotFoundError:
            pass
        except PermissionError as error:
            if not place.common:
                raise
            # NFS 3 creates a file and sets its mode in two steps. Going elsewhere because of that moment would mean a
            # lock of our own, beside the one that everybody else has.
            refused = error
            time.sleep(_PAUSE)
            continue
        try:
            return _create(place)
        except FileExistsError:
            continue
    raise refused or OSError(0, "it appears and vanishes")


def _create(place: LockPlace) -> int:
    """A new file; where everybody comes, open to everybody from its first moment on, as uv makes its own."""
    if not place.common:
        return os.open(place.path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
    before = os.umask(0)  # not chmod alone: another user who comes before it would pass this place over
    try:
        fd = os.open(place.path, _OPEN | os.O_CREAT | os.O_EXCL, 0o666)
    finally:
        os.umask(before)
    with suppress(OSError):
        os.fchmod(fd, 0o666)  # a default ACL of the directory counts instead of the umask
    return fd


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
