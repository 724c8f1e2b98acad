"""Lanes: in a directory store, the subtrees that one UID each writes.

    lanes/<uid>-<random>/<scope>/<tool>/<fingerprint>/<key>.pack
                         tmp/          half-written packs; never listed by readers
                         quarantine/   packs that turned out bad
                         usage/        what this UID found useful, a file a day

A lane belongs to the UID that *owns* it, whatever its name says, and counts only while nobody else can write in it.
Both are checked on the open descriptor at every level, so that neither a planted link, nor a renamed lane, nor a
directory with open permissions can put bytes in front of a reader who did not ask for them.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from typing import Any

from ondol.errors import PackError, StoreError
from ondol.host import files

TMP = "tmp"
QUARANTINE = "quarantine"
USAGE = "usage"
#: Names in a lane that are not scopes.
RESERVED = frozenset({TMP, QUARANTINE, USAGE})
SUFFIX = ".pack"
#: How many names a job looks at, in all, to count what it does not read: strangers can make as many as they like.
LOOKED_AT = 2000
#: We, or the machine, ran out of something: what to do. It says nothing about what we wanted to open.
EXHAUSTED = {
    errno.EMFILE: "allow more open files, such as: ulimit -n 4096",
    errno.ENFILE: "allow the machine more open files, such as: sysctl fs.file-max=1000000",
    errno.ENOMEM: "give the job more memory",
}
#: What a publisher is told if a cleaning took the folder away that it was about to use (ESTALE: over NFS).
_VANISHED = frozenset({errno.ENOENT, errno.ESTALE})
#: How often a publisher makes its folder again. Each time a cleaning must have come at just the wrong moment.
_TRIES = 32
#: Refusals that show a lane not to be ours (planted, or gone). Any other one, such as EIO, says nothing about whose it
#: is, and must not make a second lane in which our earlier entries are not found.
_SOMEBODY_ELSES = frozenset({errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class NotTheirs(OSError):
    """A directory or file in a lane that its owner alone does not control."""


def pass_over(error: OSError) -> None:
    """Go on without what could not be opened, as without any bad entry; but an exhausted reader knows nothing.

    Raises `StoreError` then: a store that we had no descriptor left for must not look like an empty one.
    """
    if error.errno in EXHAUSTED:
        because = os.strerror(error.errno)
        raise StoreError("the store could not be read whole", because=because, hint=EXHAUSTED[error.errno])


def listed(lanes: int) -> list[tuple[int, str]]:
    """(owner, name) of each lane that one user controls, our own first: what we made ourselves needs the least faith.

    Judged without opening any: everybody may make a thousand directories here.
    """
    found = [(owner, name) for owner, name, closed in there(lanes) if closed]
    return sorted(found, key=lambda one: (one[0] != os.geteuid(), one[1]))


def there(lanes: int) -> Iterator[tuple[int, str, bool]]:
    """(owner, name, whether its owner alone can write in it) of each lane."""
    for name, status in _statuses(lanes):
        if stat.S_ISDIR(status.st_mode):
            yield status.st_uid, name, not status.st_mode & files.OTHERS_CAN_WRITE


def _statuses(folder: int, end: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Of what is in an open directory, under names that end like this."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(end):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError as error:
                    pass_over(error)
                    continue  # removed while we looked
                yield entry.name, status


def count(lanes: int, scope: str, tools: Collection[str], budget: Iterator[int]) -> int:
    """How many packs of these tools lie in a scope of anybody's lane, for people to know: nothing is read or believed.

    Looks at no more names than `budget` has left.
    """
    tools_there = [f"{scope}/{name}" for name in _names(lanes, scope, budget) if name in tools]
    folders = [f"{tool}/{name}" for tool in tools_there for name in _names(lanes, tool, budget)]
    return sum(name.endswith(SUFFIX) for folder in folders for name in _names(lanes, folder, budget))


def _names(lanes: int, path: str, budget: Iterator[int]) -> list[str]:
    if next(budget, None) is None:
        return []
    try:
        with files.opened(files.open_below(lanes, path)) as folder, os.scandir(folder) as entries:
            return [entry.name for _, entry in zip(budget, entries, strict=False)]
    except OSError as error:
        pass_over(error)
        return []


def open_checked(name: str, parent: int, owner: int | None = None) -> tuple[int, int]:
    """Open a directory that one user controls: (descriptor, owner). Raises `OSError`, `NotTheirs` among them."""
    fd = files.open_dir(name, parent)
    status = os.fstat(fd)
    if status.st_mode & files.OTHERS_CAN_WRITE or owner not in (None, status.st_uid):
        os.close(fd)
        raise NotTheirs(1, f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}", name)
    return fd, status.st_uid


def read_pack(folder: int, name: str, owner: int, limit: int) -> bytes:
    """A pack's bytes, if its file is a plain one that the lane's owner alone controls.

    Raises `PackError` if no pack can be like this file, before reading it.
    """

    def judge(fd: int, status: os.stat_result) -> None:
        if status.st_uid != owner or status.st_mode & files.OTHERS_CAN_WRITE:
            raise NotTheirs(1, f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}", name)
        if files.is_hollow(fd, status):
            raise PackError("not a pack", because=f"most of its {status.st_size} bytes were never written")

    try:
        return files.read_regular(name, limit, folder, judge)[0]
    except files.TooLarge as error:
        raise PackError("not a pack", because=error.strerror or "too large")


def in_spite_of_cleaning(act: Callable[[], Any], let_go: Callable[[], None]) -> Any:
    """Do something that makes folders and uses them, again if a cleaning takes one away, still empty, in between.

    `let_go` closes what was open: a folder that is gone stays gone for whoever has it open.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return act()
        except OSError as error:
            if error.errno not in _VANISHED or not tries_left:
                raise
            let_go()
    raise AssertionError("unreachable: the last try returns or raises")


class Lane:
    """One open lane. The folder that was last asked for stays open, with those above it, and no other: a thousand reads
    from one folder cost a thousand opens, and a thousand folders cost four descriptors.
    """

    def __init__(self, lanes: int, name: str, owner: int | None = None) -> None:
        self.name = name
        self.fd, self.owner = open_checked(name, lanes, owner)
        self._open: list[tuple[str, int]] = []

    def folder(self, *path: str) -> int:
        """A directory below the lane, each level checked; open until another one is asked for.

        Raises `OSError` if it is not there or not theirs.
        """
        return self._enter(path, lambda name, above: open_checked(name, above, self.owner)[0])

    def make_folder(self, *path: str, mode: int = 0o755) -> int:
        """The same, created on the way. For the lane's owner only."""
        return self._enter(path, lambda name, above: files.make_dir(name, mode, dir_fd=above))

    def _enter(self, path: tuple[str, ...], opened: Callable[[str, int], int]) -> int:
        for depth, name in enumerate(path):
            if depth < len(self._open) and self._open[depth][0] == name:
                continue
            self.leave(depth)
            self._open.append((name, opened(name, self._open[-1][1] if self._open else self.fd)))
        return self._open[len(path) - 1][1] if path else self.fd

    def leave(self, depth: int = 0) -> None:
        """Close the open folders below this depth."""
        while len(self._open) > depth:
            files.close_quietly(self._open.pop()[1])

    def names(self, *path: str) -> list[str]:
        """The names in a folder; none if it cannot be read: that part of the lane is a miss."""
        try:
            return files.list_names(self.folder(*path))
        except OSError as error:
            pass_over(error)
            return []

    def packs(self, *path: str) -> Iterator[tuple[str, os.stat_result]]:
        """(key, status) of each pack in a folder."""
        try:
            for name, status in _statuses(self.folder(*path), SUFFIX):
                if stat.S_ISREG(status.st_mode):
                    yield name.removesuffix(SUFFIX), status
        except OSError as error:
            pass_over(error)

    def close(self) -> None:
        self.leave()
        files.close_quietly(self.fd)


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
