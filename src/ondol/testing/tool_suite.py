"""What every tool module must do: the contract of `ondol.tools.api`, as tests on real directories.

Ours and other packages' alike: a test module subclasses `ToolSuite` and provides `tool` and `make_cache(path)`, which
writes a small cache as the tool would, temporary files and locks included, and returns the number of entries in it.
"""

import os
import shutil
from pathlib import Path

import pytest

from ondol.errors import EntryRefused
from ondol.host import identity
from ondol.room import fill, harvest
from ondol.store import pack
from ondol.store.entry import Entry
from ondol.tools import table
from ondol.tools.api import CacheDir, Found, Refused, Tool

HOST = identity.this_host()


def scan(tool: Tool, path: Path, *, ours: bool = True) -> tuple[list[Found], list[Refused]]:
    items = list(tool.scan(CacheDir(str(path), ours=ours), HOST))
    return [i for i in items if isinstance(i, Found)], [i for i in items if isinstance(i, Refused)]


def entries(tool: Tool, path: Path, *, ours: bool = True) -> list[Entry]:
    cache = CacheDir(str(path), ours=ours)
    return [harvest.read_entry(tool, cache, found, "main", {}) for found in scan(tool, path, ours=ours)[0]]


def unpack_all(tool: Tool, made: list[Entry], room: Path) -> None:
    stage = room / "stage"
    stage.mkdir(parents=True)
    (room / "cache").mkdir()
    cache = CacheDir(str(room / "cache"), ours=True)
    for entry in made:
        again = pack.decode(pack.encode(entry), entry.address)
        fill.unpack(tool, again, fill.bind(tool, again, cache), cache, str(stage))


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


class ToolSuite:
    tool: Tool

    def make_cache(self, path: Path) -> int:
        raise NotImplementedError

    def test_describes_itself(self) -> None:
        row = self.tool.row
        assert row.sharing in table.SHARING
        assert row.summary
        assert row.versions
        assert row.variables or row.note  # a cache that no variable moves needs a word

    def test_a_users_own_value_is_overruled(self) -> None:
        row = self.tool.row
        for name in row.moved_by:
            assert not table.plan(row, {name: "/theirs"}, "/room", asked=False).managed
            assert table.plan(row, {name: "/theirs"}, "/room", asked=True).managed
        for name in set(row.sets) - set(row.moved_by):
            assert name not in table.plan(row, {name: "theirs"}, "/room", asked=True).env

    def test_whole_cache_is_found_and_nothing_refused(self, tmp_path: Path) -> None:
        count = self.make_cache(tmp_path / "one")
        found, refused = scan(self.tool, tmp_path / "one")
        assert (len(found), refused) == (count, [])
        for item in found:
            assert self.tool.accepts(item.fingerprint, HOST)
            assert self.tool.witness(item.names) in item.names
            assert self.tool.folder(item.key) == item.folder

    def test_moved_entry_still_names_its_old_place(self, tmp_path: Path) -> None:
        """Pack, unpack elsewhere, remove the original: all as it was, and no path of the original in it."""
        self.make_cache(tmp_path / "one")
        made = entries(self.tool, tmp_path / "one")
        parts = {os.path.join(f.folder, name) for f in scan(self.tool, tmp_path / "one")[0] for name in f.names}
        shutil.rmtree(tmp_path / "one")
        unpack_all(self.tool, made, tmp_path / "room")
        after = contents(tmp_path / "room" / "cache")
        assert set(after) == parts
        assert not any(str(tmp_path / "one").encode() in data for data in after.values())
        assert entries(self.tool, tmp_path / "room" / "cache") == [
            entry._replace(seconds=again.seconds)
            for entry, again in zip(made, entries(self.tool, tmp_path / "room" / "cache"), strict=True)
        ]

    def test_stored_form_holds_a_path(self, tmp_path: Path) -> None:
        self.make_cache(tmp_path / "one")
        for entry in entries(self.tool, tmp_path / "one"):
            assert not any(str(tmp_path).encode() in bytes(file.data) for file in entry.files)

    def test_half_an_entry_travels(self, tmp_path: Path) -> None:
        """Each file of each entry removed or emptied: never a whole entry with less in it."""
        self.make_cache(tmp_path / "one")
        whole = {
            entry.address.key: {f.name: bytes(f.data) for f in entry.files}
            for entry in entries(self.tool, tmp_path / "one")
        }
        for place in [p for p in sorted((tmp_path / "one").rglob("*")) if p.is_file()]:
            for damage in ("removed", "emptied"):
                copy = tmp_path / "copy"
                shutil.copytree(tmp_path / "one", copy)
                target = copy / place.relative_to(tmp_path / "one")
                target.unlink()
                if damage == "emptied":
                    target.touch()
                for found in scan(self.tool, copy, ours=False)[0]:
                    try:
                        entry = harvest.read_entry(self.tool, CacheDir(str(copy), ours=False), found, "main", {})
                    except EntryRefused:
                        continue
                    assert {f.name: bytes(f.data) for f in entry.files} == whole[found.key], (place, damage)
                shutil.rmtree(copy)

    def test_unreadable_folder_raises(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.make_cache(tmp_path / "one")

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(CacheDir, "listing", refuse)
        found, refused = scan(self.tool, tmp_path / "one")
        assert found == []
        assert {item.kind for item in refused} == {"unreadable"}
