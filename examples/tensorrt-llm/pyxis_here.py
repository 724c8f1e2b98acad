"""Stands where `srun` stands on a cluster with pyxis, on one without: the same flags, the real srun, real bind mounts.

    pyxis_here.py [srun's flags] --container-mounts=SOURCE:TARGET[:ro|:rw],... COMMAND ...

Each rank gets a mount namespace of its own in which the mounts are made; a mount without a mode is writable, as with
pyxis. There is no image: a rank sees this machine's programs, but not the site's file systems (HOST_ONLY). It is root,
as in those containers, at home in CONTAINER_HOME.
"""

from __future__ import annotations

import os
import subprocess
import sys


def outside(words: list[str]) -> None:
    """Take pyxis's flags away, and let the real srun start each rank inside its mounts."""
    flags: list[str] = []
    mounts = ""
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, _, value = word.partition("=")
        if name == "--container-mounts":
            mounts = value
        elif not name.startswith("--container") and name != "--no-container-mount-home":
            flags.append(word)
    here = [sys.executable, os.path.abspath(__file__), "--inside", mounts]
    srun = os.environ["REAL_SRUN"]
    os.execv(srun, [srun, *flags, "unshare", "--mount", "--propagation", "private", *here, *words])


def inside(mounts: str, command: list[str]) -> None:
    for mount in filter(None, mounts.split(",")):
        source, target, *mode = mount.split(":")
        subprocess.run(["mount", "--bind", source, target], check=True)
        if mode == ["ro"]:
            subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)
    for path in os.environ["HOST_ONLY"].split(":"):
        subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
    os.environ["HOME"] = os.environ["CONTAINER_HOME"]
    os.execvp(command[0], command)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        outside(sys.argv[1:])
