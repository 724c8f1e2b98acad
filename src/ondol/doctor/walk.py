"""One bounded walk through a directory tree, to the leaves, shared by all checks that need it.

Nearest first, so that a walk which has to stop early has seen every entry's own directory before any entry's files.
Links are never followed, and neither is a directory that was swapped for one while we looked; other file systems are
not entered and not even touched, because one of them may be dead.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ondol.doctor import rights
from ondol.doctor.api import Finding, Location, Repair
from ondol.host import files, filesystem
from ondol.store import marker

_PROGRESS_EVERY = 500


class Bounds(NamedTuple):
    #: Files and directories.
    entries: int = 200_000
    seconds: float = 60.0


class Seen(NamedTuple):
    """One file or directory, as it was seen, and what this process may do with it."""

    #: Relative to the top; empty for the top itself.
    name: str
    mode: int
    uid: int
    gid: int
    size: int
    modified_ns: int
    device: int
    inode: int
    readable: bool
    #: A directory: files can be made in it. A lock file: it can be opened for writing. Anything else: True.
    usable: bool

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def modified(self) -> float:
        return self.modified_ns / 1e9


class Tree(NamedTuple):
    path: str
    #: The top itself first.
    entries: list[Seen]
    #: Why the walk ended early, or empty.
    stopped: str
    #: Other file systems that begin in here, and directories that changed while we looked.
    unvisited: list[str]
    #: Who shares it, by the rights on the top: see `rights`.
    sharing: str
    #: Ondol's stores below the top, by name. Nothing of them is in `entries`: opened to a group, as one opens a plain
    #: cache, a store would be believed by nobody.
    stores: list[str]

    @property
    def top(self) -> Seen:
        return self.entries[0]

    @property
    def is_plain(self) -> bool:
        """Whether a command may go through all of it: no store, nothing unseen that could be one."""
        return not (self.stores or self.unvisited or self.stopped)

    def holds_store(self, name: str) -> bool:
        """Whether it is a store, lies in one, or has one in it."""
        return any(f"{store}/".startswith(f"{name}/") or name.startswith(f"{store}/") for store in self.stores)

    def full(self, entry: Seen) -> str:
        return os.path.join(self.path, entry.name) if entry.name else self.path

    def place(self, entry: Seen) -> Location:
        return Location(self.full(entry), entry.uid, entry.gid, f"{stat.S_IMODE(entry.mode):04o}")

    def finding(
        self, severity: str, what: str, entries: Sequence[Seen], why: str, fix: str, repairs: tuple[Repair, ...] = ()
    ) -> Iterator[Finding]:
        """One for all entries of a kind; nothing if there are none."""
        if entries:
            yield Finding(severity, what, self.place(entries[0]), why, fix, len(entries), repairs)

    def chmod(self, entry: Seen, add: int = 0, drop: int = 0) -> Repair:
        return Repair("chmod", self.full(entry), entry.device, entry.inode, add=add, drop=drop)

    def size(self) -> int:
        return sum(entry.size for entry in self.entries if entry.is_file)


def acl_of(path: str, kind: str) -> bytes:
    """The access control list of a file or directory, as the kernel keeps it; empty where there is none to be had."""
    try:
        return os.getxattr(path, kind, follow_symlinks=False)
    except OSError:
        return b""


def is_lock(name: str) -> bool:
    """Files that tools open for writing although somebody else may have made them."""
    base = name.rpartition("/")[2]
    return base in ("lock", ".lock") or base.endswith((".lock", ".lockfile"))


def walk(path: str, bounds: Bounds, report: Callable[[int, int], None]) -> Tree:
    """`path` has no symbolic links. Raises `OSError` if there is nothing to be seen there."""
    return _Walk(path, bounds, report).run()


class _Walk:
    def __init__(self, path: str, bounds: Bounds, report: Callable[[int, int], None]) -> None:
        self._path, self._bounds, self._report = path, bounds, report
        # On a read-only mount nobody may write anywhere: that is the mount's fault, and no owner's or mode's.
        self._to_write = 0 if os.statvfs(path).f_flag & os.ST_RDONLY else os.W_OK
        self._top = self._see("", os.lstat(path), path, None)
        self._entries = [self._top]
        self._queue: deque[Seen] = deque([self._top] if self._top.is_dir else [])
        self._unvisited: list[str] = []
        self._stores: list[str] = []
        self._deadline = time.monotonic() + bounds.seconds
        self._stopped = ""
        inside = path.rstrip("/") + "/"
        self._mounts = {point.removeprefix(inside) for point in filesystem.mounts() if point.startswith(inside)}

    def run(self) -> Tree:
        while self._queue and not self._stopped:
            self._enter(self._queue.popleft())
        top = rights.without_mask(self._top.mode, acl_of(self._path, rights.ACCESS))
        stores = set(self._stores)
        entries = [entry for entry in self._entries if entry.name not in stores]
        return Tree(self._path, entries, self._stopped, self._unvisited, rights.sharing(top), self._stores)

    def _enter(self, folder: Seen) -> None:
        # Not for us, or gone: what we may do with it was noted when it was seen.
        with suppress(OSError), files.opened(files.open_dir(os.path.join(self._path, folder.name))) as fd:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) != (folder.device, folder.inode):
                # A component above it became a link, or another directory took its name: not ours to look into.
                self._unvisited.append(folder.name)
                return
            if folder is not self._top and marker.exists(fd):
                self._stores.append(folder.name)
                return
            with os.scandir(fd) as listing:
                for entry in listing:
                    if self._is_enough():
                        return
                    self._meet(f"{folder.name}/{entry.name}".lstrip("/"), entry, fd)

    def _meet(self, name: str, entry: os.DirEntry[str], fd: int) -> None:
        if name in self._mounts:
            self._unvisited.append(name)
            return
        try:
            seen = self._see(name, entry.stat(follow_symlinks=False), entry.name, fd)
        except OSError:
            return  # removed while we looked
        self._entries.append(seen)
        if len(self._entries) % _PROGRESS_EVERY == 0:
            self._report(len(self._entries), self._bounds.entries)
        if not seen.is_dir:
            return
        if seen.device == self._top.device:
            self._queue.append(seen)
        else:
            self._unvisited.append(name)

    def _see(self, name: str, status: os.stat_result, way: str, folder: int | None) -> Seen:
        """`way` leads from the open `folder` to it. The kernel is asked: mode bits know nothing of ACLs."""

        def may(mode: int) -> bool:
            return os.access(way, mode, dir_fd=folder, effective_ids=True)

        readable = usable = True
        if stat.S_ISDIR(status.st_mode):
            readable, usable = may(os.R_OK | os.X_OK), may(self._to_write | os.X_OK)
        elif stat.S_ISREG(status.st_mode):
            readable, usable = may(os.R_OK), not is_lock(name) or may(self._to_write)
        owners = (status.st_mode, status.st_uid, status.st_gid)
        identity = (status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)
        return Seen(name, *owners, *identity, readable, usable)

    def _is_enough(self) -> bool:
        if len(self._entries) >= self._bounds.entries:
            self._stopped = f"after {len(self._entries)} files and directories"
        elif time.monotonic() > self._deadline:
            self._stopped = f"after {self._bounds.seconds:g} seconds"
        return bool(self._stopped)
