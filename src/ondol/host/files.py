"""File operations that the store and the room are built from: small, exact, and safe on names others may control.

Everything here works relative to an open directory descriptor, never follows a symbolic link in the last component, and
calls `os` directly, one system call a line, so that the fault tests can stop, fail or kill at each of them. What
the order of the calls defends against is written in docs/design/write-ordering.md.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

#: O_NONBLOCK: opening a FIFO that somebody planted must not hang the job; it has no effect on regular files.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 8 << 20


class NotRegular(OSError):
    """The name is there and is not a plain file (a link, a FIFO, a directory)."""


class TooLarge(OSError):
    """The file is larger than its kind may ever be."""


def random_name() -> str:
    """128 random bits: unique across hosts, containers and processes without asking anybody."""
    return os.urandom(16).hex()


def open_dir(name: str, dir_fd: int | None = None) -> int:
    """Open a directory, refusing a symbolic link in its last component."""
    return os.open(name, DIRECTORY, dir_fd=dir_fd)


def make_dir(name: str, mode: int, dir_fd: int | None = None) -> int:
    """Create a directory if it is not there, with exactly this mode whatever the umask, and return it open.

    An existing one of ours that others cannot read is mended: a writer killed between mkdir and chmod, under umask
    077, would otherwise leave a lane that nobody else can read for ever. One that its owner made read-only stays so.
    """
    try:
        os.mkdir(name, mode, dir_fd=dir_fd)
    except FileExistsError:
        pass
    fd = open_dir(name, dir_fd)
    try:
        status = os.fstat(fd)
        ours = status.st_uid == os.geteuid() and status.st_mode & stat.S_IWUSR
        if ours and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(fd, mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_regular(name: str, limit: int, dir_fd: int | None = None) -> tuple[bytes, os.stat_result]:
    """The whole of a plain file and the status of the very descriptor it was read from."""
    fd = os.open(name, READ, dir_fd=dir_fd)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular(errno.EINVAL, "not a regular file", name)
        if status.st_size > limit:
            raise TooLarge(errno.EFBIG, f"larger than {limit} bytes", name)
        return _read_all(fd, status.st_size), status
    finally:
        os.close(fd)


def pieces_of(name: str) -> Iterator[bytes]:
    """A plain file of any size, piece by piece."""
    fd = os.open(name, READ)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegular(errno.EINVAL, "not a regular file", name)
        while piece := os.read(fd, _CHUNK):
            yield piece
    finally:
        os.close(fd)


def _read_all(fd: int, size: int) -> bytes:
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    parts = [data]
    # A short read is legal on network file systems; a file that grows meanwhile is cut, and its digest will say so.
    while len(data) > 0 and sum(map(len, parts)) <= size:
        data = os.read(fd, _CHUNK)
        parts.append(data)
    return b"".join(parts)


def write_all(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    if len(view) <= _CHUNK:
        view = view[os.write(fd, view) :]
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]


def write_new(name: str, data: bytes, mode: int, dir_fd: int | None = None, *, sync: bool) -> None:
    """Create a file that did not exist, with this content and mode. With `sync`, durable before it returns."""
    fd = os.open(name, CREATE, 0o600, dir_fd=dir_fd)
    try:
        write_all(fd, data)
        os.fchmod(fd, mode)
        if sync:
            os.fsync(fd)
    except BaseException:
        close_quietly(fd)
        raise
    # Not in a finally clause: on NFS a full disk or quota may show only here, and then the file is not written.
    os.close(fd)


def close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass  # the first error is the one to tell


def fsync_dir(fd: int) -> None:
    """Make the names in a directory durable. Some network file systems cannot; that is no error, EIO is."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise


def link_new(source: str, source_fd: int, target: str, target_fd: int) -> bool:
    """Give a finished file its final name; False if that name is taken. Never replaces.

    link(2) and not rename: rename would replace another producer's entry under a reader. Over NFS a reply can be lost
    after the server did the work, so an error is believed only if the two names are not the same inode.
    """
    try:
        os.link(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
    except OSError as error:
        if _same_inode(source, source_fd, target, target_fd):
            return True
        if error.errno == errno.EEXIST:
            return False
        raise
    return True


def _same_inode(one: str, one_fd: int, other: str, other_fd: int) -> bool:
    try:
        first = os.stat(one, dir_fd=one_fd, follow_symlinks=False)
        second = os.stat(other, dir_fd=other_fd, follow_symlinks=False)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def unlink_quietly(name: str, dir_fd: int | None = None) -> bool:
    """Remove a name; False if that was not possible (already gone, not ours): never an error in a clean-up."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except OSError:
        return False
    return True


def list_names(fd: int) -> list[str]:
    """The names in an open directory, sorted so that every reader walks in the same order."""
    return sorted(os.listdir(fd))


def remove_tree(path: str) -> bool:
    """Remove a directory tree that we own, also one with unwritable directories in it. True if it is gone.

    Never follows a link and never raises: leftovers are somebody else's files, and the caller says so.
    """
    _unlock(path)
    try:
        with os.scandir(path) as entries:
            found = list(entries)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            unlink_quietly(entry.path)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _unlock(path: str) -> None:
    """Give ourselves back the rights on a directory of ours that a job took away (as Go's module cache does)."""
    try:
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o700 != 0o700:
            os.chmod(path, 0o700)
    except OSError:
        return
