"""What the numbers were measured on. No names of hosts, no paths: the page is public."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from bench import measure
from ondol.host import filesystem


def describe() -> str:
    """One line that lets a reader judge the numbers."""
    measure.BUILD.mkdir(parents=True, exist_ok=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return ", ".join(
        [
            f"{os.cpu_count()} cores",
            f"{memory:.0f} GiB",
            f"Linux {'.'.join(platform.release().split('.')[:2])}",
            filesystem.fs_type(str(measure.BUILD)),
            f"Python {platform.python_version()}",
            *(f"{name} {_version(name)}" for name in ("triton", "zstandard")),
        ]
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
