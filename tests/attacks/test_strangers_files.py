"""Files of another user in a cache that root adopts, or in a room that root closes, become root's word for them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handmade import write_triton_entry
from people import Program, needs_root

pytestmark = pytest.mark.warm

STRANGER = 3001


@pytest.fixture
def place(public: Path, tmp_path: Path) -> Iterator[Path]:
    path = public / tmp_path.name
    path.mkdir()
    yield path
    shutil.rmtree(path)


def store_of_roots(program: Program, place: Path, *writers: str) -> str:
    made = program.ondol("store", "init", str(place / "store"), *writers)
    assert made.returncode == 0, made.stderr
    return str(place / "store")


def entries(program: Program, store: str) -> int:
    return program.ondol("store", "ls", "--store", store).stdout.count("triton")


def room_filled_by_a_stranger(program: Program, place: Path, store: str) -> str:
    opened = program.ondol(
        "open", "--store", store, "--tools", "triton", "--uid", str(STRANGER), "--room-file", str(place / "room"),
        "--room-dir", str(place), "--publish", "on-success",
    )  # fmt: skip
    assert opened.returncode == 0, opened.stderr
    env = dict(line.removeprefix("export ").split("=", 1) for line in opened.stdout.splitlines())
    done = program.run([sys.executable, str(program.programs / "standin.py"), "add"], uid=STRANGER, env=env)
    assert done.returncode == 0, done.stderr
    return (place / "room").read_text().strip()


@needs_root
def test_room_that_a_stranger_filled_is_not_published_as_roots(program: Program, place: Path) -> None:
    store = store_of_roots(program, place)
    room = room_filled_by_a_stranger(program, place, store)
    closed = program.ondol("close", room, "--status", "0")
    assert closed.returncode == 0, closed.stderr
    assert "1 new, 0 published" in closed.stderr
    assert f"uid {STRANGER}" in closed.stderr
    assert f"--trust {STRANGER}" in closed.stderr
    assert entries(program, store) == 0
    assert not os.path.exists(room)


@needs_root
@pytest.mark.parametrize("how", ["trust", "writer"])
def test_room_of_somebody_whom_root_vouches_for_is_published(program: Program, place: Path, how: str) -> None:
    store = store_of_roots(program, place, *(("--writers", str(STRANGER)) if how == "writer" else ()))
    room = room_filled_by_a_stranger(program, place, store)
    closed = program.ondol("close", room, "--status", "0", *(("--trust", str(STRANGER)) if how == "trust" else ()))
    assert "1 published" in closed.stderr, closed.stderr
    assert entries(program, store) == 1


@needs_root
def test_adopting_leaves_out_a_strangers_entries(program: Program, place: Path) -> None:
    store = store_of_roots(program, place)
    cache = place / "cache"
    write_triton_entry(cache, 1)
    write_triton_entry(cache, 2, name="theirs")
    for folder, _, names in os.walk(cache / os.listdir(cache)[0]):
        for name in (".", *names):
            os.chown(os.path.join(folder, name), STRANGER, STRANGER)
    adopt = ("store", "adopt", str(cache), "--tool", "triton", "--store", store)
    done = program.ondol(*adopt)
    assert "untrusted" in done.stdout, done.stdout
    assert f"--trust {STRANGER}" in done.stdout
    assert entries(program, store) == 1
    assert program.ondol(*adopt, "--trust", str(STRANGER)).returncode == 0
    assert entries(program, store) == 2


def test_file_with_a_second_name_elsewhere_is_not_adopted(program: Program, store_path: Path, tmp_path: Path) -> None:
    """Whoever has the other name still writes into what we take for finished; or the file was never this cache's."""
    cache = tmp_path / "cache"
    folder = write_triton_entry(cache, 1)
    write_triton_entry(cache, 2, name="single")
    os.link(folder / "add.cubin", tmp_path / "elsewhere")
    done = program.ondol("store", "adopt", str(cache), "--tool", "triton", "--store", str(store_path))
    assert "several-names" in done.stdout, done.stdout
    assert entries(program, str(store_path)) == 1
