"""What is examined: the machine, and directories with the part they play for a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ondol.doctor import commands, walk
from ondol.doctor.api import Finding, Location
from ondol.host import filesystem
from ondol.store.directory import Judge
from ondol.tools.table import Row

CACHE, STORE, TEMPORARY, ROOM, HOME, MACHINE = "cache", "store", "temporary", "room", "home", "machine"
#: All that are directories.
DIRECTORIES = frozenset({CACHE, STORE, TEMPORARY, ROOM, HOME})
#: For the reference page.
ROLES = {
    CACHE: "a cache that tools write into directly",
    STORE: "a store of Ondol's",
    TEMPORARY: "where temporary files go",
    ROOM: "where `ondol run` can make its room",
    HOME: "the user's home",
    MACHINE: "the machine and the user, beside any directory",
}


class Machine(NamedTuple):
    """Who asks, and with which settings; the same for all subjects of one examination."""

    env: Mapping[str, str]
    uid: int
    #: The user's own group, and all that the user is in.
    gid: int
    groups: frozenset[int]
    #: The configured store, or the user's own; and whether somebody configured it.
    store: str
    store_is_set: bool
    #: Whose lanes a reader with these settings uses.
    judge: Judge
    #: `--trust`
    trusted: tuple[int, ...]
    #: `--room-dir`, or empty
    room_dir: str


class FirstLook(NamedTuple):
    """What a first touch showed, in a helper process that may hang."""

    #: directory, missing, file, unreachable, hangs
    kind: str
    #: The path without symbolic links.
    real: str
    #: As it was named, with the owner and mode of the directory, or of where the way to it ends.
    where: Location
    #: Where the way to it ends, and why; for all kinds but `directory`.
    stuck_at: str = ""
    because: str = ""


@dataclass(eq=False)
class Subject:
    machine: Machine
    #: As the user or a setting named it; empty for the machine itself.
    path: str
    roles: frozenset[str]
    state: FirstLook
    #: Whose cache it is, if that is known.
    tool: Row | None = None
    #: The user typed it, or configured it as the store: its absence is then an error.
    named: bool = False
    bounds: walk.Bounds = walk.Bounds()  # noqa: RUF009 - an immutable record
    #: What the walk saw. For checks that say that they walk: it is made for them beforehand.
    tree: walk.Tree = None  # type: ignore[assignment]
    #: What is wrong with it, the worst first.
    findings: list[Finding] = field(default_factory=list)

    @property
    def real(self) -> str:
        return self.state.real

    def as_root(self, *words: str) -> str:
        """These commands for the caller to type, who may have to ask for root's rights first."""
        return commands.as_root(self.machine.uid, *words)

    def as_owner(self, owner: int, command: str) -> str:
        """For something of this owner's: root's rights are needed only if that is somebody else."""
        return command if owner == self.machine.uid else self.as_root(command)

    @cached_property
    def mount(self) -> filesystem.Mount:
        return filesystem.mount_of(self.real, filesystem.mounts())


def the_machine(machine: Machine) -> Subject:
    return Subject(machine, "", frozenset({MACHINE}), FirstLook("directory", "", Location("")))
