"""A room: a job's private, writable directory on node-local disk. Unique, disposable, never shared.

<base>/ondol-room-<uid>-<random>/   mode 0700
    owner      who made it (pid, start time, boot, pid namespace), so that a later run can tell a dead one
    kept       only if the user asked to keep it: then nobody sweeps it
    tmp/       the command's TMPDIR; links in it lead to caches that tools look for there
    stage/     entries while they are being unpacked
    cache/<tool>/
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from ondol.errors import RoomError
from ondol.host import files, process

PREFIX = "ondol-room-"
VARIABLE = "ONDOL_ROOM"
#: A room without an owner's note was left between two system calls; after a day nobody is between them any more.
_ORPHAN_AGE = 24 * 3600.0


class Room:
    def __init__(self, path: str, *, keeps_atime: bool) -> None:
        self.path = path
        #: Whether reading a file in here moves its access time: only then can we tell what was used.
        self.keeps_atime = keeps_atime
        self.tmp = os.path.join(path, "tmp")
        self.stage = os.path.join(path, "stage")

    def cache_dir(self, tool: str) -> str:
        return os.path.join(self.path, "cache", tool)

    def env(self) -> dict[str, str]:
        return {"TMPDIR": self.tmp, VARIABLE: self.path}

    def make_cache_dir(self, tool: str) -> str:
        path = self.cache_dir(tool)
        os.makedirs(path, mode=0o755, exist_ok=True)
        return path

    def link_below_tmp(self, name: str, tool: str) -> None:
        """A tool that keeps part of its cache below TMPDIR, whatever it is told, keeps it with the rest."""
        os.symlink(self.cache_dir(tool), os.path.join(self.tmp, name))

    def keep(self) -> None:
        files.write_new(os.path.join(self.path, "kept"), b"", 0o600, sync=False)

    def close(self) -> bool:
        """Remove everything. False if something in it could not be removed (files of another user)."""
        return files.remove_tree(self.path)


def open_room(base: str, *, keeps_atime: bool) -> Room:
    """Make a new room in a directory that was found usable."""
    path = os.path.join(base, f"{PREFIX}{os.geteuid()}-{files.random_name()}")
    try:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # an exotic umask must not lock us out of our own room
        files.write_new(os.path.join(path, "owner"), process.myself().encode(), 0o600, sync=False)
        for name in ("tmp", "stage", "cache"):
            os.mkdir(os.path.join(path, name), 0o700)
            os.chmod(os.path.join(path, name), 0o700)
    except OSError as error:
        files.remove_tree(path)
        raise RoomError(
            f"cannot make a room in {base}", because=error.strerror or str(error), hint="name another --room-dir"
        )
    return Room(path, keeps_atime=keeps_atime)


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
    ours = f"{PREFIX}{os.geteuid()}-"
    try:
        names = [name for name in os.listdir(base) if name.startswith(ours)]
    except OSError:
        return 0
    return sum(files.remove_tree(path) for path in (os.path.join(base, name) for name in names) if _is_over(path))


def _is_over(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False  # another job swept it at this moment
    try:
        if status.st_uid != os.geteuid() or os.path.islink(path) or os.path.lexists(os.path.join(path, "kept")):
            return False
        owner = process.Owner.decode(files.read_regular(os.path.join(path, "owner"), 4096)[0])
    except FileNotFoundError:
        owner = None
    except OSError:
        return False
    if owner is None:
        return time.time() - status.st_mtime > _ORPHAN_AGE
    # The job's own processes may outlive its Ondol; they carry the room's name in their environment.
    return process.certainly_dead(owner) and not process.mentions_in_environment(f"{VARIABLE}={path}")
