"""Two strikes that leave different states, of which only one is looked at because both are taken for the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.states import same_names, state

pytestmark = pytest.mark.fault


def _make(place: Path) -> None:
    (place / "folder").mkdir(parents=True)
    (place / "folder" / "file").write_bytes(b"content")
    (place / "folder" / "link").symlink_to("file")


def _point_elsewhere(place: Path) -> None:
    (place / "folder" / "link").unlink()
    (place / "folder" / "link").symlink_to("folder")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda place: (place / "folder" / "file").write_bytes(b"contenT"),
    "half a file": lambda place: os.truncate(place / "folder" / "file", 3),
    "a name": lambda place: (place / "folder" / "file").rename(place / "folder" / "other"),
    "a folder": lambda place: (place / "folder").rename(place / "other"),
    "an empty folder more": lambda place: (place / "folder" / "new").mkdir(),
    "an empty file more": lambda place: (place / "folder" / "new").touch(),
    "a second name": lambda place: os.link(place / "folder" / "file", place / "folder" / "second"),
    "a file's mode": lambda place: (place / "folder" / "file").chmod(0o444),
    "a folder's mode": lambda place: (place / "folder").chmod(0o1777),
    "where a link leads": _point_elsewhere,
    "an old file": lambda place: os.utime(place / "folder" / "file", (0, 0)),
    "an old folder": lambda place: os.utime(place / "folder", (0, 0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_differs_makes_another_state(change: str, tmp_path: Path) -> None:
    _make(tmp_path / "place")
    before = state(str(tmp_path / "place"))

    CHANGES[change](tmp_path / "place")

    assert state(str(tmp_path / "place")) != before


def test_same_made_anew_is_the_same_state(tmp_path: Path) -> None:
    _make(tmp_path / "place")
    before = state(str(tmp_path / "place"))
    (tmp_path / "place").rename(tmp_path / "away")

    _make(tmp_path / "place")

    assert state(str(tmp_path / "place")) == before


def test_of_a_dead_owner_only_the_number_is_ignored(tmp_path: Path) -> None:
    def state_of(owner: str) -> bytes:
        (tmp_path / "owner").write_text(owner)
        return state(str(tmp_path))

    assert state_of("12 345 boot pid:[1]") == state_of("67 890 boot pid:[1]")
    assert state_of("12 345 boot pid:[1]") != state_of("67 890 boot")


def test_names_are_the_same_each_time_and_each_is_another(tmp_path: Path) -> None:
    def drawn() -> list[bytes]:
        with same_names():
            reading, writing = os.pipe()
            first = os.urandom(16)
            for _ in range(2):
                pid = os.fork()
                if pid == 0:
                    os.write(writing, os.urandom(16))
                    os._exit(0)
                os.waitpid(pid, 0)
            names = [first, os.read(reading, 16), os.read(reading, 16), os.urandom(16)]
        os.close(reading)
        os.close(writing)
        return names

    assert drawn() == drawn()
    assert len(set(drawn())) == 4
    assert os.urandom(16) not in drawn()
