"""The directory store keeps the backends' contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.backend_suite import BackendSuite
from handmade import trust_everybody
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address


class Directory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> DirectoryStore:
        return DirectoryStore(str(self.path), trust_everybody)

    def corrupt(self, address: Address) -> None:
        (path,) = self.path.rglob(f"{address.key}.pack")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
        path.chmod(0o444)


class TestDirectory(BackendSuite):
    @pytest.fixture
    def place(self, store_path: Path) -> Directory:
        return Directory(store_path)


def test_a_closed_backend_leaves_no_descriptor_open(store_path: Path) -> None:
    """A backend that is closed leaves nothing open."""
    import os

    from handmade import make_entry
    from ondol.store import pack

    def used() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = used()
    backend = Directory(store_path).open()
    entry = make_entry(1)
    backend.publish([(entry.address, pack.encode(entry))])
    for stored in backend.index("triton", ["main"]):
        backend.fetch(stored)
    backend.note_use([entry.address])
    backend.last_uses()
    backend.close()
    assert used() == before


def test_lanes_are_listed_own_first(store: DirectoryStore) -> None:
    (Path(store.where) / "lanes" / "0000-before-all-others").mkdir(mode=0o755)
    store.my_lane()
    owners = [lane.name for lane in store.lanes()]
    assert len(owners) == 2


def test_half_written_packs_are_never_listed(store: DirectoryStore) -> None:
    lane = store.my_lane()
    lane.make_folder("tmp", mode=0o700)
    half = Path(store.where) / "lanes" / lane.name / "tmp" / "whatever.pack"
    half.write_bytes(b"half")
    assert list(store.everything()) == []
