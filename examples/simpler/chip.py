"""The project's own code, the same before and after: two runtimes for a simulated chip.

`Kernels` runs what is called `kernel`; `Graphs` looks for `build_NAME_graph`. Both compile a task's C into a shared
library, copy that to where the runner says (`task.unique`), load it, and never close it.

CHIP_LOG    a file that every compilation and every opening of a device is noted in
CHIP_BAD    the number of a device that cannot be opened
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent / "tasks"
sys.path.append(str(SHARED))

import simruntime  # noqa: E402


def note(*words: object) -> None:
    if path := os.environ.get("CHIP_LOG"):
        with open(path, "a", encoding="utf-8") as log:
            log.write(" ".join(map(str, words)) + "\n")


class Kernels:
    """A compiler, and a device that is opened once."""

    def prepare(self, task: Any) -> str:
        name = task["source"]
        folders = [folder for folder in (HERE / "kernels", SHARED / "kernels") if (folder / name).exists()]
        compiled = len(list(simruntime.BUILD.glob(f"{Path(name).stem}-*.so")))
        library = str(simruntime.build(folders[0] / name))
        if not compiled:
            note("compile", name, os.getpid())
        return library

    def open(self, device: Any) -> None:
        number = str(device.visible or 0)
        note("open", type(self).__name__, number, os.getpid())
        if number == os.environ.get("CHIP_BAD"):
            raise OSError("set_device failed with code 507899")

    def run(self, task: Any) -> None:
        path = self.place(task)
        shutil.copyfile(task.prepared, path)
        data = (ctypes.c_double * 4)(1.0, 2.0, 3.0, 4.0)
        code = getattr(ctypes.CDLL(str(path)), self.symbol(task))(data, 4)
        assert code == 0, f"the chip says {code}"
        assert list(data) == task["expected"], f"wrong result: {list(data)}"

    def place(self, task: Any) -> Path:
        path: Path = task.unique("kernel.so")
        return path

    def symbol(self, _task: Any) -> str:
        return "kernel"


class Graphs(Kernels):
    def symbol(self, task: Any) -> str:
        return f"build_{task['source'].removesuffix('.c')}_graph"


class FixedGraphs(Graphs):
    """With the fault: whatever the runner offers, it has one path per process."""

    def place(self, _task: Any) -> Path:
        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"orch_so_{os.getpid()}.so"
        path.unlink(missing_ok=True)
        return path
