"""Which accelerators this machine has and which driver runs them, from the kernel's own files: no library is loaded and
no device is touched.

For what another driver or another model must not be given: code that a driver compiled, choices that were measured.
"""

import hashlib
import os
import re
from functools import cache
from typing import NamedTuple

from ondol.host import process

#: The driver's own name for itself, one line, where a container shows it at all; the first that can be read.
_DRIVERS = (
    ("nvidia", "proc/driver/nvidia/version", r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s"),
    ("nvidia", "sys/module/nvidia/version", r"^(\d+(?:\.\d+)+)"),
    ("amdgpu", "sys/module/amdgpu/version", r"^(\d+(?:\.\d+)+)"),
)
#: A name must fit into a fingerprint, with others.
_LONGEST = 80


class Accelerators(NamedTuple):
    #: `nvidia-580.159.04`; empty if there is none, or none that can be read.
    driver: str
    #: Each kind once, sorted: `NVIDIA H200`, `gfx942-304cu`.
    models: tuple[str, ...]

    @property
    def name(self) -> str:
        """Driver and models as one plain name: equal names mean interchangeable machines. Empty if not known."""
        if not self.driver or not self.models:
            return ""
        models = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", model) for model in self.models)
        if len(models) > _LONGEST:
            models = hashlib.sha256(models.encode()).hexdigest()[:16]
        return f"{self.driver}-{models}"


@cache
def here() -> Accelerators:
    return read("/")


def read(root: str) -> Accelerators:
    """The facts below this root; `/`, but for tests."""
    return Accelerators(_driver(root), tuple(sorted({*nvidia_models(root), *amd_models(root)})))


def _driver(root: str) -> str:
    for vendor, path, pattern in _DRIVERS:
        found = re.search(pattern, process.read(os.path.join(root, path)), re.MULTILINE)
        if found:
            return f"{vendor}-{found[1]}"
    return ""


def nvidia_models(root: str = "/") -> list[str]:
    """In the order of the PCI bus."""
    texts = _texts(os.path.join(root, "proc/driver/nvidia/gpus"), "information")
    found = [re.search(r"^Model:\s*(\S.*?)\s*$", text, re.MULTILINE) for text in texts]
    return [model[1] for model in found if model and model[1] != "Unknown"]


def amd_models(root: str = "/") -> list[str]:
    """Architecture and size: what is fastest differs between products of one architecture. In the driver's order."""
    models = []
    for text in _texts(os.path.join(root, "sys/class/kfd/kfd/topology/nodes"), "properties"):
        values = dict(re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE))
        target = int(values.get("gfx_target_version", 0))
        if target:  # 0 for the node of the processors
            units = int(values.get("simd_count", 0)) // (int(values.get("simd_per_cu", 0)) or 1)
            models.append(f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}-{units}cu")
    return models


def _texts(folder: str, name: str) -> list[str]:
    """Of this file in each folder there."""
    try:
        ordered = sorted(os.listdir(folder), key=lambda one: (len(one), one))  # 9 before 10
        return [process.read(os.path.join(folder, one, name)) for one in ordered]
    except OSError:
        return []
