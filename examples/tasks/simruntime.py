"""Two runtimes for the simulated accelerator: one with the fault of seed 003, one with its cure.

`prepare` compiles, on a CPU slot, while devices are busy with something else. `run` loads what was compiled.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUILD = Path(os.environ.get("SIM_BUILD", HERE / "build"))


def build(source: Path) -> Path:
    """Compile once per content; the finished file appears whole."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = BUILD / f"{source.stem}-{digest}.so"
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        command = ["gcc", "-shared", "-fPIC", "-o", part, source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{source.name} does not compile:\n{done.stderr}")
        os.replace(part, target)
    return target


class UniquePaths:
    """The cure: every load has a name of its own."""

    def open(self, device: Any) -> None:
        self.library = ctypes.CDLL(str(build(HERE / "simaccel.c")))
        number = int(device.visible or 0)
        if self.library.sim_open(number) != 0:
            raise RuntimeError(f"no simulated device {number}")

    def prepare(self, task: Any) -> str:
        return str(build(HERE / "kernels" / task["kernel"]))

    def place(self, task: Any) -> Path:
        path: Path = task.unique("kernel.so")
        return path

    def run(self, task: Any) -> None:
        kernel = self.place(task)
        shutil.copyfile(task.prepared, kernel)
        data = (ctypes.c_double * 4)(*task["data"])
        code = self.library.sim_launch(str(kernel).encode(), data, 4)
        assert code == 0, f"the device says {code}"
        assert list(data) == task["expected"]

    def fault(self) -> str | None:
        """Asked after every task: a sticky error ends this process, not the next ten tasks."""
        return "sticky error 700" if self.library.sim_status() else None

    def close(self) -> None:
        self.library.sim_close()


class FixedPath(UniquePaths):
    """The fault: one path for every kernel. The loader knows libraries by their path, so it returns the first one."""

    def place(self, _task: Any) -> Path:
        path = Path(os.environ["TMPDIR"]) / "kernel.so"
        path.unlink(missing_ok=True)
        return path
