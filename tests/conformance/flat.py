"""The smallest place for packs that keeps the contract: one folder, one writer. It shows that a second backend can come."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ondol.errors import PackError
from ondol.store import pack, usage
from ondol.store.api import Published, Stat, Stored
from ondol.store.entry import Address


class Flat:
    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.path = path
        self.vet: Callable[[Stored, Any], None] = lambda _stored, _manifest: None
        self.check_writer: Callable[[str, bool], None] = lambda _scope, _signs: None

    def everything(self) -> Iterator[Stored]:
        for file in sorted(self.path.glob("*.pack")):
            status, address = file.stat(), Address(*file.stem.split("+"))
            yield Stored(address, file.name, status.st_uid, status.st_size, status.st_mtime, trusted=True)

    def index(self, tool: str, scopes: Sequence[str]) -> list[Stored]:
        there = [stored for stored in self.everything() if stored.address.tool == tool]
        return [stored for scope in scopes for stored in there if stored.address.scope == scope]

    def find(self, addresses: Collection[Address]) -> list[Stored]:
        return [stored for stored in self.everything() if stored.address in addresses]

    def has_more_than(self, number: int, tool: str, scopes: Sequence[str]) -> bool:
        return len(self.index(tool, scopes)) > number

    def tools(self, scopes: Sequence[str]) -> set[str]:
        return {stored.address.tool for stored in self.everything() if stored.address.scope in scopes}

    def passed_over(self, _tools: Collection[str], _scopes: Sequence[str]) -> list[tuple[int, str, int]]:
        return []

    def fetch(self, stored: Stored) -> bytes:
        return (self.path / stored.place).read_bytes()

    def trusts(self, owner: int, scope: str = "") -> bool:
        return owner == os.geteuid()

    def before_forking(self) -> None:
        pass

    def publish(self, packs: Iterable[tuple[Address, bytes]]) -> list[Published]:
        return [Published(address, self._publish(address, data)) for address, data in packs]

    def _publish(self, address: Address, data: bytes) -> bool:
        final, half = self.path / ("+".join(address) + ".pack"), self.path / os.urandom(8).hex()
        half.write_bytes(data)
        try:
            pack.inspect(final.read_bytes(), address)
        except (FileNotFoundError, PackError):
            half.rename(final)
            return True
        half.unlink()
        return False

    def set_aside(self, stored: Stored) -> bool:
        (self.path / stored.place).rename(self.path / f"{stored.place}.bad")
        return True

    def delete(self, stored: Stored) -> bool:
        try:
            (self.path / stored.place).unlink()
        except FileNotFoundError:
            return False
        return True

    def note_use(self, addresses: Iterable[Address], job: str = "") -> None:
        for address in addresses:
            (self.path / f"{'+'.join(address)}.use-{job}").touch()

    def uses_of(self, job: str) -> set[Address]:
        return {Address(*use.name.rpartition(".")[0].split("+")) for use in self.path.glob(f"*.use-{job}")}

    def last_uses(self) -> dict[Address, float]:
        return dict.fromkeys(self.uses_of(""), 0.0)

    def report(self, rows: Iterable[Stat]) -> None:
        (self.path / f"{os.urandom(8).hex()}.stat").write_text(json.dumps([list(row) for row in rows]))

    def reports(self) -> list[Stat]:
        notes = [json.loads(note.read_text()) for note in self.path.glob("*.stat")]
        return usage.add_up(Stat(*row) for note in notes for row in note)

    def close(self) -> None:
        pass
