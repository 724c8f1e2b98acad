"""What to write on each container runtime's command line so that a job inside has the room. Pure.

Every mount has its mode spelled out: a mount without one is writable for everybody, and nobody notices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class RoomMount(NamedTuple):
    source: str
    target: str
    mode: str
    #: Whether the machine labels files (SELinux), so that containers may not touch what is not labelled for them.
    labelled: bool = False


#: (mount, variables) → the words for the command line.
Flags = Callable[[RoomMount, Mapping[str, str]], list[str]]


class Runtime(NamedTuple):
    flags: Flags
    #: The job sees the room through a mount.
    mounted: bool = True
    #: The job inherits the environment of whoever starts the container.
    inherits: bool = False


def _docker(mount: RoomMount, env: Mapping[str, str]) -> list[str]:
    # Shared label: the steps of one job may be several containers.
    mode = f"{mount.mode},z" if mount.labelled else mount.mode
    variables = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    return ["--volume", f"{mount.source}:{mount.target}:{mode}", *variables]


def _apptainer(mount: RoomMount, env: Mapping[str, str]) -> list[str]:
    variables = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    return ["--bind", f"{mount.source}:{mount.target}:{mount.mode}", *variables]


def _enroot(mount: RoomMount, env: Mapping[str, str]) -> list[str]:
    variables = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    return ["--mount", f"{mount.source}:{mount.target}:none:x-create=dir,bind,{mount.mode}", *variables]


def _slurm(_: RoomMount, env: Mapping[str, str]) -> list[str]:
    return ["--export=ALL," + ",".join(f"{name}={value}" for name, value in env.items())]


def _pyxis(mount: RoomMount, env: Mapping[str, str]) -> list[str]:
    # Named once more, because a value in the image otherwise wins.
    names = ",".join(env)
    mounted = f"--container-mounts={mount.source}:{mount.target}:{mount.mode}"
    return [mounted, f"--container-env={names}", *_slurm(mount, env)]


RUNTIMES: dict[str, Runtime] = {
    "docker": Runtime(_docker),
    "podman": Runtime(_docker),
    "apptainer": Runtime(_apptainer, inherits=True),
    "enroot": Runtime(_enroot),
    "pyxis": Runtime(_pyxis, inherits=True),
    "slurm": Runtime(_slurm, mounted=False, inherits=True),
}
