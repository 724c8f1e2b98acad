"""The sabotages: each undoes one thing that a promise rests on, in this process and in what it forks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

import pytest

from ondol.host import files
from ondol.room import fill
from ondol.store import directory, lane, pack
from ondol.store.api import Published
from ondol.store.entry import Address


def no_sync_of_contents(patch: pytest.MonkeyPatch) -> None:
    """Packs get their names before their bytes are on disk."""
    patch.setattr(directory, "_sync", lambda _descriptors: None)


def no_sync_of_names(patch: pytest.MonkeyPatch) -> None:
    """A publish is acknowledged before the pack's name is on disk."""
    patch.setattr(files, "fsync_dir", lambda _fd: None)


def no_sync_above(patch: pytest.MonkeyPatch) -> None:
    """Only the last folder is synced, not the way to it."""
    patch.setattr(directory, "_with_those_above", lambda paths: paths)


class _EqualToAll(bytes):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


class _CarelessHash:
    def __init__(self, data: bytes | memoryview) -> None:
        self._real = sha256(data)

    def digest(self) -> bytes:
        return _EqualToAll(self._real.digest())

    def hexdigest(self) -> str:
        return self._real.hexdigest()


def no_verification(patch: pytest.MonkeyPatch) -> None:
    """A pack's digest is not compared."""
    patch.setattr(pack, "sha256", _CarelessHash)


def rename_instead_of_link(patch: pytest.MonkeyPatch) -> None:
    """The last producer wins, as with `os.replace`."""

    def replace(source: str, source_fd: int, target: str, target_fd: int) -> bool:
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        return True

    patch.setattr(files, "link_new", replace)


def temporary_files_where_readers_look(patch: pytest.MonkeyPatch) -> None:
    """Packs are written under their final name."""

    def publish(store: directory.DirectoryStore, batch: Sequence[tuple[Address, bytes]]) -> list[Published]:
        for address, data in batch:
            folder = store.my_lane().make_folder(*address[:3])
            fd = os.open(address.key + lane.SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=folder)
            files.write_all(fd, data)
            os.fsync(fd)
            os.close(fd)
        return [Published(address, True) for address, _ in batch]

    patch.setattr(directory.DirectoryStore, "_publish_batch", publish)


def no_owner_check(patch: pytest.MonkeyPatch) -> None:
    """Whoever owns a lane, a folder or a pack, and whoever can write it, it is taken as it is."""

    def open_unchecked(name: str, parent: int, owner: int | None = None) -> tuple[int, int]:
        fd = files.open_dir(name, parent)
        return fd, os.geteuid() if owner is None else owner

    patch.setattr(lane, "listed", lambda lanes: [(os.geteuid(), name) for name in files.list_names(lanes)])
    patch.setattr(lane, "open_checked", open_unchecked)
    patch.setattr(lane, "read_pack", lambda folder, name, _owner, limit: files.read_regular(name, limit, folder)[0])


def one_lane_for_all(patch: pytest.MonkeyPatch) -> None:
    """All users write in one directory, as raw shared caches do; for that it must be open and unchecked."""
    no_owner_check(patch)
    make_dir = files.make_dir

    def make_open(name: str, mode: int, dir_fd: int | None = None) -> int:
        return make_dir(name, mode | 0o777, dir_fd)

    def open_common(lanes: int, _where: str) -> lane.Lane:
        os.close(make_open("common", 0, lanes))
        return lane.Lane(lanes, "common")

    patch.setattr(files, "make_dir", make_open)
    patch.setattr(lane, "open_mine", open_common)


def witness_first(patch: pytest.MonkeyPatch) -> None:
    """Files are moved into a room with the one that means "finished" at their head."""
    move = fill._move_in
    patch.setattr(
        fill, "_move_in", lambda aside, folder, names, **how: move(aside, folder, list(reversed(names)), **how)
    )
