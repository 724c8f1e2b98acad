"""A directory whose opening never returns: the kernel's own automounter, with nobody to answer it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hanging_mount(path: Path) -> Iterator[None]:
    """Mount a FUSE file system without a server behind it: every access waits for a reply that never comes."""
    path.mkdir(exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    mount = ["mount", "-i", "-t", "fuse", "-o", options, "nobody", str(path)]
    try:
        subprocess.run(mount, check=True, pass_fds=[device], capture_output=True)
        yield
    finally:
        os.close(device)  # the kernel ends all waits with ENOTCONN
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
