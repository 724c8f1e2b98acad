"""File operations that the store and the room are built from: small, exact, and safe on names others may control.

Everything here works relative to an open directory descriptor, never follows a symbolic link in the last component, and
calls `os` directly, one system call a line, so that the fault tests can stop, fail or kill at each of them. What
the order of the calls defends against is written in docs/design/write-ordering.md.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

#: O_NONBLOCK: opening a FIFO that somebody planted must not hang the job; it has no effect on regular files.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A descriptor that only names its file, which we need not be able to read; on macOS it must be readable.
NAMES = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CHUNK = 8 << 20


class NotRegular(OSError):
    """The name is there and is not a plain file (a link, a FIFO, a directory)."""


class TooLarge(OSError):
    """The file is larger than its kind may ever be."""


def random_name() -> str:
    """128 random bits: unique across hosts, containers and processes without asking anybody."""
    return os.urandom(16).hex()


def make_private(base: str, prefix: str) -> str:
    """A new directory that is ours alone. Its name is short: the path of a socket below it has at most 107 bytes.

    Whoever guessed the name could only make us take another one.
    """
    while True:
        path = os.path.join(base, prefix + os.urandom(4).hex())
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        os.chmod(path, 0o700)  # an exotic umask must not lock us out
        return path


def open_dir(name: str, dir_fd: int | None = None) -> int:
    """Open a directory, refusing a symbolic link in its last component."""
    return os.open(name, DIRECTORY, dir_fd=dir_fd)


def open_private(folder: str, dir_fd: int | None = None, *, make: bool) -> int:
    """Open a directory whose name others can guess or set; `OSError` unless it is one that we alone control."""
    if make:
        with suppress(FileExistsError):  # anybody may have made a directory, or a link, of this name
            os.mkdir(folder, 0o700, dir_fd=dir_fd)
    fd = open_dir(folder, dir_fd)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & OTHERS_CAN_WRITE:
        os.close(fd)
        mode = f"{stat.S_IMODE(status.st_mode):o}"
        raise OSError(errno.EPERM, f"it belongs to user {status.st_uid}, mode {mode}", folder)
    return fd


def make_dir(name: str, mode: int, dir_fd: int | None = None) -> int:
    """Create a directory if it is not there, with exactly this mode whatever the umask, and return it open.

    An existing one of ours that others cannot read is mended: a writer killed between mkdir and chmod, under umask
    077, would otherwise leave a lane that nobody else can read for ever. One that its owner made read-only stays so.
    """
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=dir_fd)
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


def read_regular(
    name: str,
    limit: int,
    dir_fd: int | None = None,
    judge: Callable[[int, os.stat_result], None] | None = None,
    flags: int = 0,
) -> tuple[bytes, os.stat_result]:
    """The whole of a plain file and the status of the very descriptor it was read from.

    `judge` may raise what it likes when it sees that descriptor, before anything is read.
    """
    with opened(os.open(name, READ | flags, dir_fd=dir_fd)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular(errno.EINVAL, "not a regular file", name)
        if status.st_size > limit:
            raise TooLarge(errno.EFBIG, f"larger than {limit} bytes", name)
        if judge:
            judge(fd, status)
        return _read_all(fd, status.st_size), status


def is_hollow(fd: int, status: os.stat_result) -> bool:
    """Whether most of a large file was never written: a gigabyte of nothing, made in no time, takes seconds to read.

    Only a file whose blocks cannot hold it is looked into: some file systems count blocks late or compress, and ZFS
    takes its time to answer.
    """
    if status.st_size < _CHUNK or status.st_blocks * 512 > status.st_size // 2:
        return False
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE) < status.st_size
    except OSError:
        return False  # this file system cannot say
    finally:
        os.lseek(fd, 0, os.SEEK_SET)


def pieces_of(name: str, dir_fd: int | None = None, flags: int = 0) -> Iterator[bytes]:
    """A plain file of any size, piece by piece."""
    with opened(os.open(name, READ | flags, dir_fd=dir_fd)) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegular(errno.EINVAL, "not a regular file", name)
        while piece := os.read(fd, _CHUNK):
            yield piece


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


def write_whole(name: str, data: bytes, mode: int, dir_fd: int | None = None, *, sync: bool = False) -> None:
    """Under this name, in place of whatever has it: whoever looks sees the old file or the new one."""
    temporary = os.path.join(os.path.dirname(name), f".{random_name()}")
    try:
        write_new(temporary, data, mode, dir_fd, sync=sync)
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    finally:
        unlink_quietly(temporary, dir_fd=dir_fd)


@contextmanager
def opened(fd: int) -> Iterator[int]:
    """A descriptor that is closed when the block ends, however it ends. Not for what was written: see `write_new`."""
    try:
        yield fd
    finally:
        close_quietly(fd)


def close_quietly(fd: int) -> None:
    with suppress(OSError):  # the first error is the one to tell
        os.close(fd)


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


def open_below(parent: int, path: str) -> int:
    """Open a directory some levels below an open one; a symbolic link on the way is refused, wherever it leads."""
    if path and not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise NotRegular(errno.EINVAL, "not a plain relative path", path)
    return open_way(path, parent, flags=DIRECTORY)


def open_way(
    path: str, start: int | None = None, *, make: bool = False, flags: int = NAMES | os.O_NOFOLLOW | os.O_DIRECTORY
) -> int:
    """A descriptor that names a directory, reached from `start` or the root without passing a link.

    Raises `OSError` (ELOOP, ENOTDIR) where somebody planted one. It need not be readable. `make`: with what is missing.
    """
    here = os.dup(start) if start is not None else os.open("/", flags)
    for part in filter(None, path.split("/")):
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=here)
            below = os.open(part, flags, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


#: Directories that are open at once while a tree is removed; deeper ones are first brought up, in so many rounds.
_MAX_OPEN = 64
_MAX_ROUNDS = 2000
_THREADS = 8
#: Folders with fewer names are not worth threads. Seen on ext4: 1,700 files in 0.15 s instead of 0.8 s.
_WORTH_THREADS = 64


def in_threads(work: Callable[[Any], object], items: Sequence[Any]) -> None:
    """Do this to each, in several threads if there are several: for what waits for the disk. Raises its `OSError`."""
    shares = [items[number::_THREADS] for number in range(_THREADS)] if len(items) >= 4 else [items]
    failures: list[OSError] = []

    def some(share: Sequence[Any]) -> None:
        try:
            for item in share:
                work(item)
        except OSError as error:
            failures.append(error)

    started = []
    for share in shares[1:]:
        import threading

        thread = threading.Thread(target=some, args=(share,))
        try:
            thread.start()
            started.append(thread)
        except RuntimeError:  # no more threads for us
            some(share)
    some(shares[0])
    for thread in started:
        thread.join()
    if failures:
        raise failures[0]


def remove_tree(path: str) -> bool:
    """Remove a directory tree that we own, also one with unwritable directories in it. True if it is gone.

    Never follows a link and never raises: leftovers are somebody else's files, and the caller says so. Others may be
    at work in the tree, and may wish us ill: every step is relative to an open directory, so that a directory
    swapped for a link leads nowhere, and a tree deeper than any path or stack can hold is taken apart all the same.
    """
    above, name = os.path.split(os.path.abspath(path))
    try:
        parent = os.open(above, NAMES | os.O_DIRECTORY)
    except OSError:
        return not os.path.lexists(path)
    with opened(parent):
        return remove_below(parent, name)


def remove_below(parent: int, name: str) -> bool:
    """The same for a name in an open directory."""
    _Removal(parent, name).run()
    return not _is_there(name, parent)


class _Removal:
    def __init__(self, parent: int, name: str) -> None:
        self._parent = parent
        self._name = name
        #: Descriptor of the tree's top, into which deep directories are moved.
        self._top = -1
        self._moved = False
        #: Threads make no threads.
        self._alone = True

    def run(self) -> None:
        # Bounded: somebody who digs while we remove must not keep us here for ever.
        for _ in range(_MAX_ROUNDS):
            self._moved = False
            if not self._empty(self._parent, self._name, 0) or not self._moved:
                break  # else what was brought up is emptied in the next round
        rmdir_quietly(self._name, self._parent)

    def _empty(self, parent: int, name: str, depth: int) -> bool:
        """Remove what is in a directory, as far as we may; False if it could not even be opened."""
        try:
            with opened(_open_unlocked(name, parent)) as here:
                if depth == 0:
                    self._top = here
                names = os.listdir(here)
                if self._alone and len(names) >= _WORTH_THREADS:
                    self._alone = False
                    in_threads(lambda below: self._remove(here, below, depth), names)
                    self._alone = True
                else:
                    for below in names:
                        self._remove(here, below, depth)
        except OSError:
            return False
        return True

    def _remove(self, here: int, name: str, depth: int) -> None:
        if not unlink_quietly(name, dir_fd=here):
            self._remove_folder(here, name, depth + 1)

    def _remove_folder(self, here: int, name: str, depth: int) -> None:
        if depth < _MAX_OPEN:
            self._empty(here, name, depth)
            rmdir_quietly(name, here)
            return
        with suppress(OSError):
            # Moving a directory changes it (its `..`): it must be ours to write.
            close_quietly(_open_unlocked(name, here))
            os.rename(name, random_name(), src_dir_fd=here, dst_dir_fd=self._top)
            self._moved = True


def _open_unlocked(name: str, parent: int) -> int:
    """Open a directory, after giving ourselves back rights on it that a job took away (as Go's module cache does)."""
    try:
        fd = open_dir(name, parent)
    except PermissionError:
        # Not readable: a descriptor that only names it can still be asked whose it is, and no link is followed.
        with opened(os.open(name, NAMES | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=parent)) as named:
            os.chmod(f"/proc/self/fd/{named}", 0o700)
        fd = open_dir(name, parent)
    with suppress(OSError):  # somebody else's: what can be removed in it is removed
        status = os.fstat(fd)
        if status.st_mode & 0o700 != 0o700:
            os.fchmod(fd, 0o700)
    return fd


def _is_there(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def rmdir_quietly(name: str, parent: int) -> None:
    """Remove a directory if nothing is in it."""
    with suppress(OSError):
        os.rmdir(name, dir_fd=parent)
