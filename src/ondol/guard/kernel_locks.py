"""Kernel locks on open files: who gets one, who must wait, and which file systems have none.

A lock belongs to the open file, so it ends when its descriptor is closed: by us, or by the kernel when we are killed.
Every error other than "somebody has it" means that there are no locks here; docs/design/locks.md lists which errors
were seen where. Nothing in this module waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable

#: ENOTSUPP, a number of the kernel's own that NFS servers without a lock manager let through; C libraries have no name
#: for it, so that no program that tests for ENOTSUP or ENOLCK finds it.
ENOTSUPP = 524
_BUSY = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})
#: What the kernel means, for those whose own words would mislead.
_MEANINGS = {
    ENOTSUPP: "the file system has no locks (ENOTSUPP 524)",
    errno.ENOSYS: "the file system has no locks (ENOSYS)",
    errno.EOPNOTSUPP: "the file system has no locks (EOPNOTSUPP)",
    errno.ENOLCK: "the lock service of the file system does not answer (ENOLCK)",
    errno.EBADF: "the file system locks only files that are open for writing (EBADF)",
    errno.ESTALE: "the file is gone on the server (ESTALE)",
    errno.EINVAL: "the file system does not know such locks (EINVAL)",
}
#: One way of locking: (descriptor, shared) → whether we have it now. Raises `NoLocks`.
Way = Callable[[int, bool], bool]


class NoLocks(Exception):
    """Locks of this kind cannot be had on this file."""


def explain(error: OSError) -> str:
    return _MEANINGS.get(error.errno or 0, error.strerror or str(error))


def by_flock(fd: int, shared: bool) -> bool:
    """flock(2): also on directories and on files that are open for reading only, on local file systems."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise NoLocks(explain(error))
    return True


def by_fcntl(fd: int, shared: bool) -> bool:
    """A lock on the file's first byte; bound to the open file where the system can do that, else to the process."""
    try:
        return _by_open_file(fd, shared)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise NoLocks(explain(error))
    try:
        fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1)
    except OSError as error:
        if error.errno in _BUSY or error.errno == errno.EACCES:  # POSIX lets a system answer either
            return False
        raise NoLocks(explain(error))
    return True


def _by_open_file(fd: int, shared: bool) -> bool:
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:  # macOS
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    request = struct.pack("hhqqi0q", fcntl.F_RDLCK if shared else fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        fcntl.fcntl(fd, command, request)
    except OSError as error:
        if error.errno in _BUSY or error.errno == errno.EACCES:
            return False
        raise
    return True


#: In order of preference. Locks of different ways do not see each other on local file systems; whoever comes to the
#: same file finds the same one working.
WAYS: tuple[tuple[str, Way], ...] = (("flock", by_flock), ("fcntl", by_fcntl))
