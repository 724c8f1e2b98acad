"""A neighbour who can rename what lies in a directory takes a room away and puts another in its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from people import Program, needs_root

pytestmark = pytest.mark.warm

NEIGHBOUR = 1002
ME = 1001


@pytest.fixture
def base(public: Path, tmp_path: Path) -> Iterator[Path]:
    path = public / tmp_path.name
    path.mkdir()
    yield path
    shutil.rmtree(path)


#: mode, owner, group → whether the base can hold a room of ME's
BASES = {
    "everybody writes, no sticky bit": (0o777, 0, 0, False),
    "everybody writes, sticky": (0o1777, 0, 0, True),
    "a group writes, no sticky bit": (0o775, ME, NEIGHBOUR, False),
    "a group writes, sticky": (0o1775, ME, NEIGHBOUR, True),
    "the user's own group writes": (0o775, ME, ME, True),
    "only the user writes": (0o755, ME, ME, True),
    "the neighbour's, open and sticky": (0o1777, NEIGHBOUR, NEIGHBOUR, False),
}


@needs_root
@pytest.mark.parametrize("name", BASES)
def test_room_is_not_made_where_others_can_replace_it(program: Program, base: Path, name: str) -> None:
    mode, owner, group, good = BASES[name]
    os.chown(base, owner, group)
    base.chmod(mode)
    done = program.ondol("run", "--room-dir", str(base), "--", "sh", "-c", "echo $TMPDIR", uid=ME)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{base}/") is good, done.stderr
    assert ("is not used" in done.stderr) is not good
    said = program.ondol("doctor", "--only", "rooms", env={"ONDOL_ROOM_DIR": str(base)}, uid=ME)
    assert (f"{base} cannot be used" in said.stdout) is not good, said.stdout
    assert ("can replace what is in it" in said.stdout) is not good


@needs_root
def test_room_of_roots_is_not_made_in_a_directory_of_a_user(program: Program, base: Path) -> None:
    """Its owner can rename what root makes there, whatever the mode."""
    os.chown(base, ME, ME)
    base.chmod(0o755)
    done = program.ondol("run", "--room-dir", str(base), "--", "sh", "-c", "echo $TMPDIR")
    assert not done.stdout.startswith(f"{base}/")
    assert f"belongs to uid {ME}" in done.stderr


@needs_root
def test_room_is_not_opened_there_either(program: Program, base: Path) -> None:
    base.chmod(0o777)
    done = program.ondol("open", "--room-dir", str(base), uid=ME)
    assert str(base) not in done.stdout
    assert "sticky" in done.stderr
    assert os.listdir(base) == []


@needs_root
@pytest.mark.parametrize(("mode", "good"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_room_is_not_made_below_a_directory_where_everybody_can_rename(
    program: Program, base: Path, mode: int, good: bool
) -> None:
    """The base is the user's own; who can move the directory above it moves the base with it."""
    mine = base / "mine"
    mine.mkdir()
    os.chown(mine, ME, ME)
    base.chmod(mode)
    done = program.ondol("run", "--room-dir", str(mine), "--", "sh", "-c", "echo $TMPDIR", uid=ME)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{mine}/") is good, done.stderr
    assert (f"others can move {base}" in done.stderr) is not good
