"""Directories that somebody else filled, perhaps in order to harm whoever reads or removes them."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from unittest import mock

import pytest

from handmade import key_of, write_triton_entry
from ondol.errors import EntryRefused
from ondol.host import files, identity
from ondol.room import harvest
from ondol.tools.api import CacheDir, Found
from ondol.tools.triton import Triton

TOOL = Triton()


def dig(top: Path, levels: int) -> None:
    """Deeper than any path can say."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("down", dir_fd=here)
        below = os.open("down", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_tree_deeper_than_any_stack_or_path_is_removed(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    dig(tmp_path / "room", 3000)
    try:
        assert files.remove_tree(str(tmp_path / "room"))
        assert list(tmp_path.iterdir()) == []
    finally:
        # If it stays, pytest's own cleaning of a later run would die of it.
        subprocess.run(["rm", "-rf", tmp_path / "room"], check=False)


def test_folder_swapped_for_a_link_while_we_remove_leaves_what_it_leads_to(tmp_path: Path) -> None:
    """Between seeing a directory and entering it, its owner puts a link in its place."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "room" / "folder").mkdir(parents=True)
    unlink = files.unlink_quietly

    def swap_first(name: str, dir_fd: int | None = None) -> bool:
        gone = unlink(name, dir_fd)
        if name == "folder" and not gone:
            (tmp_path / "room" / "folder").rmdir()
            (tmp_path / "room" / "folder").symlink_to(precious)
        return gone

    with mock.patch.object(files, "unlink_quietly", swap_first):
        files.remove_tree(str(tmp_path / "room"))
    assert (precious / "file").exists()


def test_link_in_the_place_of_a_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "room").symlink_to("precious")
    assert not files.remove_tree(str(tmp_path / "room"))
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.parametrize("more_threads", [True, False])
def test_wide_tree_is_removed_by_few_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more_threads: bool
) -> None:
    """Wide at every level, with a link, deep parts and closed folders: all goes, and only one level has threads."""
    room, precious = tmp_path / "room", tmp_path / "precious"
    precious.mkdir()
    for one in range(70):
        (room / "cache" / f"{one}" / "closed").mkdir(parents=True)
        (room / "cache" / f"{one}" / "closed" / "file").touch()
        (room / "cache" / f"{one}" / "closed").chmod(0o500)
        (room / "cache" / f"{one}" / "way").symlink_to(precious)
    for one in range(70):
        (room / "cache" / "0" / f"file{one}").touch()
    (precious / "file").touch()
    dig(room / "cache" / "1", 200)
    started = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        if not more_threads:
            raise RuntimeError("can't start new thread")
        started.append(threading.current_thread() is threading.main_thread())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    assert files.remove_tree(str(room))
    assert (precious / "file").exists()
    assert all(started)
    assert bool(started) == more_threads


def test_rights_taken_away_do_not_keep_a_tree_alive(tmp_path: Path) -> None:
    for mode in (0o000, 0o500, 0o300):
        top = tmp_path / "room" / f"{mode:o}" / "below"
        top.mkdir(parents=True)
        (top / "file").touch()
        top.chmod(mode)
        top.parent.chmod(mode)
    assert files.remove_tree(str(tmp_path / "room"))


@pytest.mark.parametrize("where", ["cache", "cache/triton", f"cache/triton/{key_of(1)}"])
def test_link_on_the_way_to_an_entry_does_not_lead_the_harvest_elsewhere(tmp_path: Path, where: str) -> None:
    """What lies behind it may be somebody's own cache, and must never be published in a job's name."""
    room, elsewhere = tmp_path / "room", tmp_path / "elsewhere"
    write_triton_entry(elsewhere / "cache" / "triton", 1)
    place = room / where
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere / where)
    cache = CacheDir(str(room / "cache" / "triton"), ours=True, below=str(room))
    new = harvest.new_entries(TOOL, cache, [], identity.this_host())
    assert new.found == []
    found = Found(key_of(1), "any", key_of(1), ("add.cubin",), "add", 0.0)
    with pytest.raises(EntryRefused):
        harvest.read_entry(TOOL, cache, found, "main", {})
    with pytest.raises(OSError, match=r".*"):
        cache.read(key_of(1), "add.cubin")


@pytest.mark.parametrize("name", ["..", "../x", "a/../../b", "/etc", "a//b"])
def test_name_that_leaves_the_cache_is_not_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / "cache" / "a").mkdir(parents=True)
    with pytest.raises(OSError, match="plain relative path"):
        CacheDir(str(tmp_path / "cache"), ours=True).listing(name)


def test_huge_file_does_not_take_our_memory(tmp_path: Path) -> None:
    """A terabyte that costs nothing to make is refused by its size, before a byte of it is read."""
    folder = write_triton_entry(tmp_path / "cache", 1)
    for child in ("add.cubin", "add.ttir"):
        os.truncate(folder / child, 900 << 20)
        os.utime(folder / child, (0, 0))
    cache = CacheDir(str(tmp_path / "cache"), ours=True)
    (found,) = harvest.new_entries(TOOL, cache, [], identity.this_host()).found
    with (
        mock.patch.object(CacheDir, "read", side_effect=AssertionError("read")),
        pytest.raises(EntryRefused, match="bytes"),
    ):
        harvest.read_entry(TOOL, cache, found, "main", {})


def test_fifo_in_a_cache_does_not_hold_the_harvest(tmp_path: Path) -> None:
    folder = write_triton_entry(tmp_path / "cache", 1)
    (folder / "add.cubin").unlink()
    os.mkfifo(folder / "add.cubin")
    cache = CacheDir(str(tmp_path / "cache"), ours=True)
    assert [refused.kind for refused in harvest.new_entries(TOOL, cache, [], identity.this_host()).refused] == [
        "incomplete"
    ]
    with pytest.raises(OSError, match="not a regular file"):
        cache.read(key_of(1), "add.cubin")


def test_entry_that_names_paths_of_the_other_side_is_not_believed(tmp_path: Path) -> None:
    """Through a wall the entries name the container's paths; one that names a path of ours is not from there."""
    write_triton_entry(tmp_path / "cache", 1)
    across = CacheDir(str(tmp_path / "cache"), ours=True, seen_as="/ondol/room/cache/triton")
    (refused,) = harvest.new_entries(TOOL, across, [], identity.this_host()).refused
    assert refused.kind == "outside"
