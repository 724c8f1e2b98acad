"""Publishing and filling know the contract and no directory store: another place for packs can come."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.backend_suite import BackendSuite
from conformance.flat import Flat
from ondol.store.entry import Address


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> Flat:
        return Flat(self.path)

    def corrupt(self, address: Address) -> None:
        (path,) = self.path.glob(f"*{address.key}.pack")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


class TestFlat(BackendSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Folder:
        (tmp_path / "flat").mkdir()
        return Folder(tmp_path / "flat")
