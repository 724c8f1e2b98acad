"""Driver and devices from the kernel's files, as they were found on real machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondol.foreign_text import is_plain_name
from ondol.host import accelerator

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \nGCC version:  gcc version 15.3.0 (GCC) \n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version:  gcc version 12.3.0\n"
H200 = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t GPU-410d4346\nGPU Firmware: \t 580.159.04\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "driver"),
    [
        ({"proc/driver/nvidia/version": OPEN}, "nvidia-580.159.04"),
        ({"proc/driver/nvidia/version": CLOSED}, "nvidia-535.183.01"),
        ({"sys/module/nvidia/version": "580.159.04\n"}, "nvidia-580.159.04"),
        ({"sys/module/amdgpu/version": "6.12.12\n"}, "amdgpu-6.12.12"),
        ({"proc/driver/nvidia/version": "something else\n"}, ""),
        ({}, ""),
    ],
)
def test_driver_is_named(tmp_path: Path, files: dict[str, str], driver: str) -> None:
    write(tmp_path, files)
    assert accelerator.read(str(tmp_path)).driver == driver


def test_models_are_each_named_once(tmp_path: Path) -> None:
    gpus = "proc/driver/nvidia/gpus/0000:00:0{}.0/information"
    other = H200.replace("H200", "RTX 6000 Ada Generation")
    write(tmp_path, {gpus.format(5): H200, gpus.format(6): H200, gpus.format(7): other})
    write(tmp_path, {"proc/driver/nvidia/version": OPEN})
    found = accelerator.read(str(tmp_path))
    assert found.models == ("NVIDIA H200", "NVIDIA RTX 6000 Ada Generation")
    assert found.name == "nvidia-580.159.04-NVIDIA_H200-NVIDIA_RTX_6000_Ada_Generation"
    assert is_plain_name(found.name)


def test_amd_models_differ_by_architecture_and_size(tmp_path: Path) -> None:
    nodes = "sys/class/kfd/kfd/topology/nodes/{}/properties"
    processor = "cpu_cores_count 96\nsimd_count 0\nsimd_per_cu 0\ngfx_target_version 0\n"
    mi300x = "cpu_cores_count 0\nsimd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\n"
    write(tmp_path, {nodes.format(0): processor, nodes.format(1): mi300x, nodes.format(2): mi300x})
    write(tmp_path, {"sys/module/amdgpu/version": "6.12.12\n"})
    found = accelerator.read(str(tmp_path))
    assert found.models == ("gfx942-304cu",)
    mi210 = mi300x.replace("90402", "90010").replace("1216", "416")
    write(tmp_path, {nodes.format(1): mi210, nodes.format(2): mi210})
    assert accelerator.read(str(tmp_path)).models == ("gfx90a-104cu",)


def test_half_known_machine_is_not_taken_for_another(tmp_path: Path) -> None:
    """A container that shows the driver and no device, or the other way round: neither says what was measured on."""
    assert accelerator.Accelerators("nvidia-580.159.04", ()).name == ""
    assert accelerator.Accelerators("", ("NVIDIA H200",)).name == ""


def test_long_list_of_models_becomes_no_name() -> None:
    many = tuple(f"NVIDIA Model Number {n}" for n in range(40))
    one, other = accelerator.Accelerators("nvidia-1.2", many), accelerator.Accelerators("nvidia-1.2", (*many, "X"))
    assert is_plain_name(one.name)
    assert one.name != other.name
