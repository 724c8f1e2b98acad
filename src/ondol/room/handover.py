"""How a room is handed to a job that does not run as we do: in a container, as another user. Pure.

What protects a room from everybody else on the machine is the directory around it: 0700 and ours. Whoever mounts the
inside of it into a container does so as us or as root, and what runs in the container never passes through the
directory around it, so the inside can be open to every UID there. Without a mount the job itself must pass, so the
room must be given to its UID, and only root can give.
"""

from __future__ import annotations

from typing import NamedTuple

from ondol.errors import UsageError

#: Where a room is seen in a container, if nothing else is asked for: the same in every job, so that a path that finds
#: its way into something compiled is no difference between jobs.
DEFAULT_PLACE = "/ondol/room"
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+@%/=-")


class Wall(NamedTuple):
    """What is between us and the job."""

    #: The path at which the job sees the inside of the room; empty for the path that it has here.
    at: str = ""
    #: The job gets there by a mount and not by its path.
    mounted: bool = False
    #: The job has our environment too, so that what the user has set here is set there.
    inherits: bool = True
    #: The UID on this side of the wall; None for whoever it may be.
    uid: int | None = None


class Rights(NamedTuple):
    #: Who gets everything inside; None for nobody but us.
    owner: int | None
    #: The mode of the directory around the inside.
    around: int
    #: Added to what is inside: of directories, of files.
    folders: int
    files: int


def rights(wall: Wall, euid: int) -> Rights:
    """Whom everything inside belongs to, and for whom it is open."""
    if wall.uid == euid or (wall.uid is None and not wall.mounted):
        return Rights(None, 0o700, 0o700, 0o600)
    if euid == 0 and wall.uid is not None:
        return Rights(wall.uid, 0o711, 0o700, 0o600)
    if wall.mounted:
        return Rights(None, 0o700, 0o777, 0o666)
    raise UsageError(
        f"a room of uid {euid} cannot be given to uid {wall.uid}",
        because="only root can give files away, and open permissions would let every user of this machine in",
        hint=f"run `ondol open` as uid {wall.uid} or as root, or mount it: --format docker, podman, apptainer …",
    )


def check_place(at: str) -> str:
    """A path inside a container that every runtime's flags can carry. Raises `UsageError`."""
    if not at.startswith("/") or at.strip("/") == "" or not is_plain(at) or "/../" in f"{at}/":
        raise UsageError(
            f"--at {at!r} cannot be a path in a container",
            hint="an absolute path of plain characters, such as /ondol/room",
        )
    return at.rstrip("/")


def is_plain(word: str) -> bool:
    """Whether a word means the same in a shell, in a mount flag and in a list with commas."""
    return bool(word) and _SAFE.issuperset(word)
