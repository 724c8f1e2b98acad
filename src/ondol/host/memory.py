"""How much memory a process has, and how much is free: on this machine, and in the container that we are in."""

from __future__ import annotations

import os

from ondol.host import process
from ondol.words import is_number

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    """Bytes; 0 when it is gone."""
    fields = process.read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def free() -> int:
    """Bytes that can be had without swapping."""
    lines = [line.split() for line in process.read("/proc/meminfo").splitlines()]
    here = next((int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"), 0)
    group = "/sys/fs/cgroup" + process.read("/proc/self/cgroup").partition("::")[2].strip()
    limit, used = process.read(f"{group}/memory.max").strip(), process.read(f"{group}/memory.current").strip()
    return min(here, int(limit) - int(used)) if is_number(limit) and is_number(used) else here
