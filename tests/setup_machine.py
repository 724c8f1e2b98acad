"""What the tests need from the machine beside Python packages: installed if we are root, named if we are not.

Tests whose needs cannot be met are skipped with the reason, and pytest counts them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from programs import nfs_image

#: Debian package → who needs it.
PURPOSE = {
    "strace": "kills and errors at chosen system calls",
    "e2fsprogs": "power-loss images",
    "g++": "torch.compile on the processor; extensions that PyTorch and TVM FFI build",
    "python3-dev": "Triton's helper library, extensions",
    "git": "provenance of entries",
    "chromium": "the pages of reports, in a real browser",
    "fonts-dejavu-core": "the same: letters for it",
    "nodejs": "the steps of our GitHub action",
    "podman": "rooms across a real container's wall",
    "runc": "the same: podman's other runtime does not work on every CI machine",
    "slurm-wlm": "a real Slurm of three nodes",
    "slurm-client": "a real Slurm of three nodes",
    "munge": "a real Slurm of three nodes",
    "openssh-server": "nodes that are reached by ssh",
    "openssh-client": "nodes that are reached by ssh",
    "acl": "the commands that ondol doctor prints for access control lists",
    "ccache": "compiled objects behind a shared directory",
    "zsh": "the tab key in a real zsh",
    "fish": "the tab key in a real fish",
    "sudo": "the pages of the documentation, typed by an ordinary user",
    "openssl": "torch.compile on the processor, which hashes headers with it",
    **dict.fromkeys(nfs_image.PROGRAMS.values(), "a machine with a real NFS server and clients"),
}
_SYSTEM = "/sbin:/usr/sbin:" + os.environ["PATH"]
#: What Debian asks before it starts a service that it has just installed.
POLICY = Path("/usr/sbin/policy-rc.d")


def missing() -> list[str]:
    there = {
        "strace": shutil.which("strace"),
        "e2fsprogs": shutil.which("mkfs.ext4", path=_SYSTEM),
        "python3-dev": (Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
        "git": shutil.which("git"),
        "chromium": shutil.which("chromium"),
        "fonts-dejavu-core": Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf").exists(),
        "nodejs": shutil.which("node"),
        "podman": shutil.which("podman"),
        "runc": shutil.which("runc", path=_SYSTEM),
        "slurm-wlm": shutil.which("slurmctld", path=_SYSTEM) and shutil.which("slurmd", path=_SYSTEM),
        "slurm-client": shutil.which("srun"),
        "munge": shutil.which("munged", path=_SYSTEM),
        "openssh-server": shutil.which("sshd", path=_SYSTEM),
        "openssh-client": shutil.which("ssh"),
        "acl": shutil.which("setfacl"),
        "ccache": shutil.which("ccache"),
        "zsh": shutil.which("zsh"),
        "fish": shutil.which("fish"),
        "g++": shutil.which("g++"),
        "openssl": shutil.which("openssl"),
        "sudo": shutil.which("sudo"),
    }
    absent = {package for package, found in there.items() if not found} | set(nfs_image.missing_packages())
    return [package for package in PURPOSE if package in absent]


@contextmanager
def nothing_starts() -> Iterator[None]:
    """Servers are for the tests to start: installing them must start none here."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def main() -> int:
    packages = missing()
    if not packages:
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        for package in packages:
            print(f"not here: {package} ({PURPOSE[package]}); the tests that need it are skipped")
        return 0
    print("installing", ", ".join(packages))
    with nothing_starts():
        return install(packages)


def install(packages: list[str]) -> int:
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if subprocess.run(command, env=env, **quiet).returncode == 0:
        return 0
    # A machine whose package lists are missing or old.
    subprocess.run(["apt-get", "update"], env=env, **quiet)
    return subprocess.run(command, env=env, **quiet).returncode


if __name__ == "__main__":
    sys.exit(main())
