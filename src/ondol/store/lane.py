"""Lanes: in a directory store, the subtrees that one UID each writes.

    lanes/<uid>-<random>/<scope>/<tool>/<fingerprint>/<key>.pack
                         tmp/          half-written packs; never listed by readers
                         quarantine/   packs that turned out bad
                         usage/        what this UID found useful, a file a day

A lane belongs to the UID that *owns* it, whatever its name says, and counts only while nobody else can write in it.
Both are checked on the open descriptor at every level, so that neither a planted link, nor a renamed lane, nor a
directory with open permissions can put bytes in front of a reader who did not ask for them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from ondol.errors import StoreError
from ondol.host import files

TMP = "tmp"
QUARANTINE = "quarantine"
USAGE = "usage"
#: Names in a lane that are not scopes.
RESERVED = frozenset({TMP, QUARANTINE, USAGE})
SUFFIX = ".pack"
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: Refusals that show a lane not to be ours (planted, or gone). Any other one, such as EIO, says nothing about whose it
#: is, and must not make a second lane in which our earlier entries are not found.
_SOMEBODY_ELSES = frozenset({errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class NotTheirs(OSError):
    """A directory or file in a lane that its owner alone does not control."""


def open_checked(name: str, parent: int, owner: int | None = None) -> tuple[int, int]:
    """Open a directory that one user controls: (descriptor, owner). Raises `OSError`, `NotTheirs` among them."""
    fd = files.open_dir(name, parent)
    status = os.fstat(fd)
    if status.st_mode & _OTHERS_CAN_WRITE or owner not in (None, status.st_uid):
        os.close(fd)
        raise NotTheirs(1, f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}", name)
    return fd, status.st_uid


def read_pack(folder: int, name: str, owner: int, limit: int) -> bytes:
    """A pack's bytes, if its file is a plain one that the lane's owner alone controls."""
    data, status = files.read_regular(name, limit, dir_fd=folder)
    if status.st_uid != owner or status.st_mode & _OTHERS_CAN_WRITE:
        raise NotTheirs(1, f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}", name)
    return data


class Lane:
    """One open lane. Keeps its folders open, so that a thousand reads cost a thousand opens, not five thousand."""

    def __init__(self, lanes: int, name: str) -> None:
        self.name = name
        self.fd, self.owner = open_checked(name, lanes)
        self._folders: dict[tuple[str, ...], int] = {}
        self._synced: set[tuple[str, ...]] = set()

    def folder(self, *path: str) -> int:
        """A directory below the lane, each level checked. Raises `OSError` if it is not there or not theirs."""
        if not path:
            return self.fd
        if path not in self._folders:
            self._folders[path], _ = open_checked(path[-1], self.folder(*path[:-1]), self.owner)
        return self._folders[path]

    def make_folder(self, *path: str, mode: int = 0o755) -> int:
        """The same, created on the way. For the lane's owner only."""
        if not path:
            return self.fd
        if path not in self._folders:
            self._folders[path] = files.make_dir(path[-1], mode, dir_fd=self.make_folder(*path[:-1]))
        return self._folders[path]

    def sync_above(self, *path: str) -> None:
        """Make the folders on the way to this one durable, once: by whom they were made does not matter, because
        whoever made them may have been killed before syncing them.
        """
        for depth in range(len(path)):
            if path[: depth + 1] not in self._synced:
                files.fsync_dir(self.folder(*path[:depth]))
                self._synced.add(path[: depth + 1])

    def names(self, *path: str) -> list[str]:
        """The names in a folder; none if it cannot be read: that part of the lane is a miss."""
        try:
            return files.list_names(self.folder(*path))
        except OSError:
            return []

    def packs(self, *path: str) -> Iterator[tuple[str, os.stat_result]]:
        """(key, status) of each pack in a folder."""
        try:
            with os.scandir(self.folder(*path)) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except OSError:
                            continue  # deleted while we looked
                        if stat.S_ISREG(status.st_mode):
                            yield entry.name.removesuffix(SUFFIX), status
        except OSError:
            return

    def close(self) -> None:
        for fd in [*self._folders.values(), self.fd]:
            files.close_quietly(fd)
        self._folders.clear()


def open_mine(lanes: int, where: str) -> Lane:
    """The lane that this process may write, made if there is none."""
    me = os.geteuid()
    for name in files.list_names(lanes):
        if not name.startswith(f"{me}-"):
            continue
        try:
            lane = Lane(lanes, name)
        except OSError as error:
            if error.errno not in _SOMEBODY_ELSES:
                raise
            continue
        if lane.owner == me:
            files.fsync_dir(lanes)  # whoever made it may have been killed before this
            return lane
        lane.close()
    name = f"{me}-{files.random_name()}"
    fd = files.make_dir(name, 0o755, dir_fd=lanes)
    owner = os.fstat(fd).st_uid
    os.close(fd)
    if owner != me:
        # NFS with root_squash: what root creates belongs to nobody. Such a lane would vouch for nobody.
        os.rmdir(name, dir_fd=lanes)
        raise StoreError(
            f"cannot publish to {where} as uid {me}",
            because=f"its file system gives our files to uid {owner} (root_squash?)",
            hint="run the job as an ordinary user, or export the store with no_root_squash",
        )
    files.fsync_dir(lanes)
    return Lane(lanes, name)
