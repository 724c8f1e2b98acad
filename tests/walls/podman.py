"""Real containers: podman as root with runc, no registry, no network; the image is a tree of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

#: No more than an ordinary user may have: raising limits needs a capability that CI machines often lack.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


#: The same for whoever calls podman by himself, as the presets of `ondol test --engine` do.
_CONFIGURATION = """\
[containers]
netns = "none"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""


class Podman:
    def __init__(self, state: Path, tree: Path) -> None:
        self._tree = tree
        self._state = state
        self._configure("vfs")  # works everywhere
        defaults = state / "containers.conf"
        defaults.write_text(_CONFIGURATION, encoding="utf-8")
        #: For any `podman`.
        self.environment = {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "CONTAINERS_STORAGE_CONF": str(state / "storage.conf"),
            "CONTAINERS_CONF": str(defaults),
        }

    def _configure(self, driver: str) -> None:
        where = self._state / driver
        text = f'[storage]\ndriver = "{driver}"\ngraphroot = "{where}/graph"\nrunroot = "{where}/run"\n'
        (self._state / "storage.conf").write_text(text, encoding="utf-8")

    def run(self, options: list[str], *command: str) -> subprocess.CompletedProcess[str]:
        base = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "run", "--rm", "--network", "none"]
        words = [*base, *_LIMITS, *options, "--rootfs", str(self._tree), *command]
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=120, check=False)

    def image(self, name: str, python: str) -> None:
        """The tree as an image of this name. Where the file system can, containers share it; else each has a copy."""
        self._configure("overlay")
        try:
            self._import(name)
            words = ["podman", "run", "--rm", "--network", "none", name, python, "-c", "pass"]
            subprocess.run(words, env=self.environment, check=True, capture_output=True, timeout=120)
        except subprocess.CalledProcessError:
            self._configure("vfs")
            self._import(name)

    def _import(self, name: str) -> None:
        tar = subprocess.Popen(["tar", "-C", str(self._tree), "-c", "."], stdout=subprocess.PIPE)
        assert tar.stdout is not None
        subprocess.run(["podman", "import", "--quiet", "-", name], stdin=tar.stdout, env=self.environment, check=True,
                       capture_output=True, timeout=120)  # fmt: skip
        tar.stdout.close()
        assert tar.wait() == 0

    def ask(self, *words: str) -> str:
        """What one podman command prints; never raises."""
        done = subprocess.run(
            ["podman", *words], env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout.strip()

    def why_not(self, python: str) -> str:
        """Empty if containers work here; else what podman says."""
        if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("runc", path=self.environment["PATH"]):
            return "needs root, podman and runc"
        try:
            done = self.run([], python, "-c", "pass")
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else f"podman does not work here: {done.stderr.strip()[-300:]}"
