"""The walk: bounded, to the leaves, never through a link, never onto another file system."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from doctor_runs import UID, Doctor, look
from ondol.cli import main
from ondol.doctor import walk
from ondol.doctor.walk import Bounds, Tree
from ondol.host import files
from people import Program, needs_root

pytestmark = pytest.mark.warm


def walked(path: Path, bounds: Bounds | None = None) -> Tree:
    return walk.walk(os.path.realpath(path), bounds or Bounds(), lambda _done, _total: None)


def names(tree: Tree) -> set[str]:
    return {entry.name for entry in tree.entries}


def test_leaves_are_reached(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "leaf").write_text("x")
    tree = walked(tmp_path)
    assert names(tree) == {"", "a", "a/b", "a/b/c", "a/b/c/leaf"}
    assert (tree.stopped, tree.unvisited, tree.size()) == ("", [], 1)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere" / "private").mkdir(parents=True)
    (tmp_path / "cache" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "cache" / "loop").symlink_to(".")
    assert names(walked(tmp_path / "cache")) == {"", "link", "loop"}


def test_directory_swapped_for_a_link_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between seeing a directory and opening it, its parent becomes a link to somewhere else."""
    (tmp_path / "cache" / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere" / "b" / "secret").touch()
    real = files.open_dir

    def swap_then_open(path: str) -> int:
        if path.endswith("/a/b"):
            os.rename(tmp_path / "cache" / "a", tmp_path / "cache" / "was-a")
            os.symlink(tmp_path / "elsewhere", tmp_path / "cache" / "a")
        return real(path)

    monkeypatch.setattr(files, "open_dir", swap_then_open)
    tree = walked(tmp_path / "cache")
    assert "a/b" in names(tree)
    assert "a/b/secret" not in names(tree)
    assert tree.unvisited == ["a/b"]


def test_limit_is_kept_and_said(tmp_path: Path) -> None:
    """Nearest first: all ten directories are seen before any of their files."""
    for number in range(10):
        (tmp_path / f"key{number}").mkdir()
        for letter in "abcdefgh":
            (tmp_path / f"key{number}" / letter).touch()
    tree = walked(tmp_path, Bounds(entries=20))
    assert len(tree.entries) == 20
    assert tree.stopped == "after 20 files and directories"
    assert {f"key{number}" for number in range(10)} <= names(tree)
    (finding,) = look(tmp_path, "owners", bounds=Bounds(entries=20))
    assert (finding.check, finding.severity) == ("walk", "note")
    assert finding.fix == f"ondol doctor --limit 200 --walk-time 600s {tmp_path}"


def test_time_is_kept_and_said(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).mkdir()
    tree = walked(tmp_path, Bounds(seconds=-1.0))
    assert (len(tree.entries), tree.stopped) == (1, "after -1 seconds")


@pytest.mark.fault
def test_huge_tree_is_not_walked_to_the_end(tmp_path: Path, program: Program) -> None:
    """20,000 names: no more than the limit is looked at, and that is said."""
    for number in range(20):
        folder = tmp_path / "cache" / f"{number:03}"
        folder.mkdir(parents=True)
        (folder / "0").touch()
        for name in range(1, 1000):
            os.link(folder / "0", folder / str(name))
    done = program.ondol("doctor", str(tmp_path / "cache"), "--limit", "5000", "--only", "owners,modes,setgid")
    assert done.returncode == 0, done.stderr
    assert "5000 files and directories" in done.stdout
    assert "NOTE walk: the walk ended after 5000 files and directories" in done.stdout
    all_of_it = ("--limit", "1000000", "--walk-time", "600s")  # however slow the disk is today
    whole = program.ondol("doctor", str(tmp_path / "cache"), *all_of_it, "--only", "owners,modes,setgid")
    assert "20021 files and directories" in whole.stdout
    assert "NOTE" not in whole.stdout


def test_limit_above_the_usual_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    told, real = tmp_path / "told", walk.walk

    def tell(path: str, bounds: Bounds, *rest: Any) -> Tree:
        told.write_text(f"{bounds.entries} {bounds.seconds}")  # a helper process may be the one who walks
        return real(path, bounds, *rest)

    monkeypatch.setattr(walk, "walk", tell)
    words = ("--limit", "1000000", "--walk-time", "600s", "--only", "owners")
    assert main.main(["doctor", str(tmp_path / "cache"), *words]) == 0
    assert Bounds().entries < 1000000
    assert told.read_text() == "1000000 600.0"


@needs_root
@pytest.mark.root
def test_other_file_systems_are_not_entered(place: Path) -> None:
    (place / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place / "mnt")], check=True)
    (place / "mnt" / "inside").touch()
    tree = walked(place)
    assert names(tree) == {""}
    assert tree.unvisited == ["mnt"]
    assert names(walked(place / "mnt")) == {"", "inside"}


@needs_root
@pytest.mark.root
def test_directory_that_cannot_be_listed_is_named(place: Path, doctor: Doctor) -> None:
    (place / "closed" / "leaf").mkdir(parents=True)
    (place / "closed").chmod(0o700)
    os.chown(place, UID, UID)
    (finding,) = doctor(place, "--only", "owners", uid=UID).json["findings"]
    assert finding["where"]["path"] == str(place / "closed")
