"""A room: a job's private, writable directory on node-local disk. Unique, disposable, never shared.

<base>/ondol-room-<uid>-<random>/   mode 0700
    owner      who made it (pid, start time, boot, pid namespace), so that a later run can tell a dead one
    members/   the same of each rank, if several share the room
    open       only between `ondol open` and `ondol close`: what close must know; out of reach of what runs inside
    opener     instead of `owner`, then: who opened it; nobody owns it
    kept       only if the user asked to keep it: then nobody sweeps it
    left       only if its job could not remove it, because somebody else's files are in it: `ondol gc` tries again
    stage/     entries while they are being unpacked
    tmp/       the command's TMPDIR; links in it lead to caches that tools look for there
    cache/<tool>/

A room that others enter through a wall has its tmp/ and cache/ in a directory of their own, `inside/`: that alone is
mounted, and nothing beside it can be reached from there.
"""

import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ondol.errors import RoomError
from ondol.host import files, filesystem, process
from ondol.room import choose, rendezvous

PREFIX = "ondol-room-"
VARIABLE = "ONDOL_ROOM"
#: The part of an open room that a job enters, and the note that says how it was opened.
INSIDE = "inside"
OPEN = "open"
OWNER = "owner"
OPENER = "opener"
#: A room without an owner's note was left between two system calls; after a day nobody is between them any more.
_ORPHAN_AGE = 24 * 3600.0
#: An open room belongs to no process, so only time tells: longer than any CI system lets a job wait between steps.
OPEN_AGE = 7 * 24 * 3600.0
#: A room that somebody filled with a million files is named by the first owners that are found in it.
_MAX_LOOKED_AT = 10_000


class Room:
    def __init__(self, path: str, *, keeps_atime: bool, inner: str = "", seen_as: str = "") -> None:
        self.path = path
        #: Whether reading a file in here moves its access time: only then can we tell what was used.
        self.keeps_atime = keeps_atime
        #: Where tmp/ and cache/ are, and the path under which the job sees that place.
        self.inner = inner or path
        self.seen_as = seen_as or self.inner
        self.tmp = os.path.join(self.inner, "tmp")
        self.stage = os.path.join(path, "stage")

    def cache_dir(self, tool: str) -> str:
        return os.path.join(self.inner, "cache", tool)

    def seen(self, path: str) -> str:
        """A path inside, as the job sees it."""
        return self.seen_as + path[len(self.inner) :]

    def env(self) -> dict[str, str]:
        return {"TMPDIR": self.seen(self.tmp), VARIABLE: self.seen_as}

    def make_cache_dir(self, tool: str) -> str:
        path = self.cache_dir(tool)
        os.makedirs(path, mode=0o755, exist_ok=True)
        return path

    def hand_over(self, owner: int | None, around: int, folders: int, plain: int) -> None:
        """Give what is inside to whoever will enter; nobody has yet, so every name still is what we made."""
        for folder, _, names, here in os.fwalk(self.inner, topdown=False):
            for name in names:
                if not stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                    _give(os.open(name, files.READ, dir_fd=here), owner, plain)
            _give(files.open_dir(folder), owner, folders)
        os.chmod(self.path, around)

    def link_below_tmp(self, name: str, tool: str) -> None:
        """A tool that keeps part of its cache below TMPDIR, whatever it is told, keeps it with the rest."""
        os.symlink(self.seen(self.cache_dir(tool)), os.path.join(self.tmp, name))

    def keep(self) -> None:
        files.write_new(os.path.join(self.path, "kept"), b"", 0o600, sync=False)

    def close(self) -> bool:
        """Remove everything. False if something in it could not be removed (files of another user)."""
        return sweep_away(self.path)


def choose_base(configured: str, env: Mapping[str, str]) -> tuple[choose.RoomChoice, filesystem.Usable]:
    """Which directory the room goes into, and what trying it showed. Raises `RoomError` if none can hold one."""
    tried: dict[str, filesystem.Usable] = {}

    def why_not(path: str) -> str:
        tried[path] = filesystem.try_directory(path)
        return tried[path].why_not

    choice = choose.choose(choose.candidates(configured, env), _is_network, why_not)
    return choice, tried[choice.candidate.path]


def _is_network(path: str) -> bool:
    return filesystem.is_network(filesystem.fs_type(path))


def open_room(base: str, *, keeps_atime: bool, at: str | None = None) -> Room:
    """Make a new room in a directory that was found usable.

    `at`: it is for somebody beyond our reach, who will see its inside at this path (empty: at its own).
    """
    path = ""
    try:
        path = files.make_private(base, f"{PREFIX}{os.geteuid()}-")
        inner = path if at is None else os.path.join(path, INSIDE)
        files.write_new(os.path.join(path, OWNER), process.myself().encode(), 0o600, sync=False)
        folders = [os.path.join(inner, "tmp"), os.path.join(inner, "cache"), os.path.join(path, "stage")]
        for folder in folders if inner == path else [inner, *folders]:
            os.mkdir(folder, 0o700)
            os.chmod(folder, 0o700)
    except OSError as error:
        if path:
            files.remove_tree(path)
        raise RoomError(
            f"cannot make a room in {base}", because=error.strerror or str(error), hint="name another --room-dir"
        )
    return Room(path, keeps_atime=keeps_atime, inner=inner, seen_as=at or "")


def _give(fd: int, owner: int | None, bits: int) -> None:
    with files.opened(fd):
        os.fchmod(fd, os.fstat(fd).st_mode & 0o777 | bits)
        if owner is not None:
            os.fchown(fd, owner, -1)


def sweep_away(path: str) -> bool:
    """Remove a room; if somebody else's files stay, note that, so that not every later job tries.

    If only our own files stay, another job is sweeping it at this moment: a note would be in its way.
    """
    if files.remove_tree(path):
        return True
    if _owners_in(path):
        with suppress(OSError):  # noted before, or not ours at all
            files.write_new(os.path.join(path, "left"), b"", 0o600, sync=False)
    return False


def links(env: Mapping[str, str]) -> dict[str, str]:
    """Name → target of what `link_below_tmp` made in the room that we are in: each further TMPDIR needs it too."""
    here = env.get(VARIABLE, "")
    if not here:
        return {}
    try:
        with os.scandir(os.path.join(here, "tmp")) as entries:
            found = {entry.name: os.readlink(entry.path) for entry in entries if entry.is_symlink()}
    except OSError:
        return {}
    caches = os.path.join(here, "cache", "")
    return {name: target for name, target in found.items() if target.startswith(caches)}


def sweep(base: str) -> int:
    """Remove our own rooms whose jobs are certainly over (SIGKILL, power loss); never a live one or another user's."""
    return sum(
        sweep_away(path) for path in rooms_in(base, os.geteuid()) if not _has(path, "left") and is_over(path, mine=True)
    )


def rooms_in(base: str, uid: int | None) -> list[str]:
    """The rooms that bear this user's name, or anybody's."""
    start = PREFIX if uid is None else f"{PREFIX}{uid}-"
    try:
        return [os.path.join(base, name) for name in os.listdir(base) if name.startswith(start)]
    except OSError:
        return []


def is_over(path: str, open_age: float = OPEN_AGE, *, mine: bool = False) -> bool:
    """Whether nobody can still want this room. False for any that we may not judge; `mine`: also as root."""
    try:
        status = os.lstat(path)
    except OSError:
        return False  # another job swept it at this moment
    ours = status.st_uid == os.geteuid() or (os.geteuid() == 0 and not mine)
    if os.path.islink(path) or not ours or _has(path, "kept"):
        return False
    if _has(path, "left"):
        return True
    try:
        if _has(path, OPEN):
            return _was_abandoned(path, open_age)
        owners = _owners(path)
    except OSError:
        return False
    if not owners:
        return time.time() - status.st_mtime > _ORPHAN_AGE
    # A note without a boot id (no /proc where it was written, or here) proves nothing, ever: then only time tells.
    old = time.time() - status.st_mtime > open_age
    boot = process.boot_id()
    over = all(process.certainly_dead(owner) or (old and not (owner.boot and boot)) for owner in owners)
    # The job's own processes may outlive its Ondol; they carry the room's name in their environment.
    return over and not process.mentioned(f"{VARIABLE}={path}")


def _has(path: str, name: str) -> bool:
    return os.path.lexists(os.path.join(path, name))


def _owners(path: str) -> list[process.Owner]:
    """Everybody who signed; nobody if that was cut off. Raises `OSError` if it cannot be read."""
    with files.opened(files.open_dir(path)) as here:
        owner = rendezvous.signed(OWNER, here)
    try:
        members = rendezvous.members(path)
    except FileNotFoundError:
        members = {}  # a room of one job
    return [*([owner] if owner else []), *members.values()]


def _was_abandoned(path: str, age: float) -> bool:
    """An open room is nobody's process. It is over after a reboot, or when it is old and nobody stands in it."""
    with files.opened(files.open_dir(path)) as here:
        opener = rendezvous.signed(OPENER, here)  # none: it was opened at this moment, or its opener was killed then
    boot = process.boot_id()
    if opener and opener.boot and boot and opener.boot != boot:
        return True
    opened = os.lstat(os.path.join(path, OPEN)).st_mtime
    return (
        time.time() - opened > age
        and not process.mentioned(f"{VARIABLE}={path}")
        and not process.mentioned(os.path.basename(path), "mountinfo")
    )


# -- `ondol gc` --------------------------------------------------------------------------------------------------------


class CleanedRoom(NamedTuple):
    path: str
    #: removed, in use, or stuck: it is over, and somebody else's files are in it
    fate: str
    #: Whose files keep it.
    others: tuple[int, ...] = ()


def clean_rooms(room_dir: str, env: Mapping[str, str], open_age: float, *, dry_run: bool) -> list[CleanedRoom]:
    """Rooms that nobody can still want, in every directory that a job of ours might have chosen: our own rooms; as root
    everybody's.
    """
    everybody = None if os.geteuid() == 0 else os.geteuid()
    bases = [offer.path for offer in choose.candidates(room_dir, env) if offer.path.startswith("/")]
    # One that a dead server holds is not looked at: asking would hold us too.
    local = [base for base in bases if not _is_network(base) or base == room_dir]
    places = dict.fromkeys(map(os.path.realpath, local))
    if not dry_run:
        for base in places:
            rendezvous.sweep(base)
    return [_clean(path, open_age, dry_run=dry_run) for base in places for path in sorted(rooms_in(base, everybody))]


def _clean(path: str, open_age: float, *, dry_run: bool) -> CleanedRoom:
    if not is_over(path, open_age):
        return CleanedRoom(path, "in use")
    if dry_run or sweep_away(path):
        return CleanedRoom(path, "removed")
    return CleanedRoom(path, "stuck", _owners_in(path))


def _owners_in(path: str) -> tuple[int, ...]:
    found: set[int] = set()
    looked_at = 0
    with suppress(OSError):  # it goes away, or its disk fails
        for _, folders, names, here in os.fwalk(path):
            for name in [*folders, *names]:
                with suppress(OSError):
                    found.add(os.stat(name, dir_fd=here, follow_symlinks=False).st_uid)
                looked_at += 1
            if looked_at > _MAX_LOOKED_AT:
                break
    return tuple(sorted(found - {os.geteuid()}))
