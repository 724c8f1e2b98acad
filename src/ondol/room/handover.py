"""How a room is handed to a job that does not run as we do: in a container, as another user. Pure.

What protects a room from everybody else on the machine is the directory around it: 0700 and ours. Whoever mounts the
inside of it into a container does so as us or as root, and what runs in the container never passes through the
directory around it, so the inside can be open to every UID there. Without a mount the job itself must pass, so the
room must be given to its UID, and only root can give. Here too: what to write on each container runtime's command line.
"""

from collections.abc import Mapping
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


class Runtime(NamedTuple):
    """A program that starts containers or job steps."""

    #: The words that mount the inside of the room; none if the job gets there by its own path. Every mount has its mode
    #: spelled out: one without is writable for everybody, and nobody notices.
    mount: tuple[str, ...] = ()
    #: The job inherits the environment of whoever starts the container.
    inherits: bool = False
    #: Variables are handed over in one word of Slurm's, and not by `--env` each.
    exports: bool = False

    def flags(self, source: str, target: str, env: Mapping[str, str], *, labelled: bool) -> list[str]:
        """The words for its command line. `labelled`: the machine labels files (SELinux), so that containers may not
        touch what is not labelled for them. A shared label: the steps of one job may be several containers.
        """
        parts = {"source": source, "target": target, "label": ",z" if labelled else "", "names": ",".join(env)}
        given = [f"{name}={value}" for name, value in env.items()]
        variables = [f"--export={','.join(['ALL', *given])}"]
        if not self.exports:
            variables = [word for variable in given for word in ("--env", variable)]
        return [*(word.format_map(parts) for word in self.mount), *variables]


_DOCKER = Runtime(("--volume", "{source}:{target}:rw{label}"))
RUNTIMES = {
    "docker": _DOCKER,
    "podman": _DOCKER,
    "apptainer": Runtime(("--bind", "{source}:{target}:rw"), inherits=True),
    "enroot": Runtime(("--mount", "{source}:{target}:none:x-create=dir,bind,rw")),
    # Variables are named once more, because a value in the image otherwise wins.
    "pyxis": Runtime(
        ("--container-mounts={source}:{target}:rw", "--container-env={names}"), inherits=True, exports=True
    ),
    "slurm": Runtime(inherits=True, exports=True),
}
