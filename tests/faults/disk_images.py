"""A real disk that loses power: an ext4 image on a loop device, copied while it is mounted and written to.

The copy holds what had reached the disk at that moment and nothing else, as after a power cut; mounting it replays the
journal, as a machine does when it comes back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.operations import packs
from faults.reader_view import store_violations, truth
from handmade import trust_everybody
from ondol.store import marker
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Entry

_TOOLS = "/usr/sbin:/sbin:/usr/bin:/bin"


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={"PATH": _TOOLS})


class Ext4:
    """A mounted image, and copies of it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.image = base / "disk.img"
        self.mounted = base / "mounted"
        self.after = base / "after"

    def mount(self, image: Path, where: Path) -> None:
        where.mkdir(exist_ok=True)
        _do("mount", "-o", "loop", str(image), str(where))

    def lose_power(self) -> Path:
        """Where the disk is seen again afterwards."""
        copy = self.base / "copy.img"
        shutil.copyfile(self.image, copy)
        self.mount(copy, self.after)
        return self.after

    def close(self) -> None:
        for where in (self.after, self.mounted):
            subprocess.run(["umount", "-l", str(where)], capture_output=True, check=False, env={"PATH": _TOOLS})


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Ext4]:
    """A small ext4 file system of our own; needs root, mkfs.ext4 and loop devices."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    if not shutil.which("mkfs.ext4", path=_TOOLS):
        pytest.skip("needs mkfs.ext4 (Debian: e2fsprogs)")
    disk = Ext4(tmp_path)
    with open(disk.image, "wb") as file:
        file.truncate(48 << 20)
    _do("mkfs.ext4", "-q", "-F", str(disk.image))
    try:
        disk.mount(disk.image, disk.mounted)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"loop mounts are not allowed here: {error.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        disk.close()


def image_violations(disk: Ext4, entries: list[Entry]) -> list[str]:
    """Publish to a mounted disk, let somebody else's fsync commit the journal, cut the power, look."""
    path = disk.mounted / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    store = DirectoryStore(str(path), trust_everybody)
    store.publish(packs(*entries))
    store.close()
    # Another program syncs its own file: the journal commits, names included, whether or not the data is there.
    with open(disk.mounted / "another", "wb") as file:
        file.write(b"x")
        os.fsync(file.fileno())
    after = disk.lose_power()
    return store_violations(after / "store", truth(entries), [entry.address for entry in entries])
