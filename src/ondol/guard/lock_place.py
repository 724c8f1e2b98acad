"""Where a lock file for a cache can be: candidates in order, each tried by really opening or creating the file.

Everybody who uses the cache should come to the same file. So nothing here depends on variables or the working
directory, and the first two candidates are the same for all users. What they do where they cannot agree is in
docs/design/locks.md.
"""

import os
import stat
import time
from typing import NamedTuple

from ondol.host import files

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
    file = f"ondol-{identify(cache)}.lock"
    return common + [LockPlace(os.path.join(base, file), False) for base in _private_bases()]


def _private_bases() -> list[str]:
    return [f"{base}/ondol-{os.geteuid()}" for base in ("/tmp", "/var/tmp")]


def private_directory(name: str) -> str:
    """A directory of this user's own on this node, the same every time. Raises `OSError` if none can be had."""
    refused = OSError()
    for base in _private_bases():
        path = os.path.join(base, name)
        try:
            os.close(files.open_private(base, make=True))
            os.close(files.open_private(path, make=True))
        except OSError as error:
            refused = error
            continue
        return path
    raise refused


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
    try:
        os.fchmod(fd, 0o666)  # a default ACL of the directory counts instead of the umask
    except OSError:
        pass
    return fd
