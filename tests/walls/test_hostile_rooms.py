"""What a job can leave in its room: nothing of it publishes wrong, leads out of the room, or holds up who comes after."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handmade import key_of, write_triton_entry
from ondol.config import Value
from ondol.host import records
from ondol.room import room
from people import Program, needs_root
from walls.rooms import Opened, open_room, rooms_in, standin, titles

pytestmark = pytest.mark.warm

Trick = Callable[[Opened, Path], None]


def triton(opened: Opened) -> Path:
    return opened.inner / "cache" / "triton"


def _cache_is_a_link(opened: Opened, secret: Path) -> None:
    shutil.rmtree(triton(opened))
    triton(opened).symlink_to(secret)


def _all_caches_are_a_link(opened: Opened, secret: Path) -> None:
    shutil.rmtree(opened.inner / "cache")
    (secret / "triton").mkdir()
    for entry in secret.iterdir():
        if entry.name != "triton":
            entry.rename(secret / "triton" / entry.name)
    (opened.inner / "cache").symlink_to(secret)


def _entry_is_a_link(opened: Opened, secret: Path) -> None:
    (triton(opened) / key_of(1)).symlink_to(secret / key_of(1))


def _files_are_links(opened: Opened, secret: Path) -> None:
    folder = triton(opened) / key_of(1)
    folder.mkdir()
    for file in (secret / key_of(1)).iterdir():
        (folder / file.name).symlink_to(file)


def _group_names_the_secret(opened: Opened, secret: Path) -> None:
    """The group file is a real one; the paths in it lead out."""
    folder = triton(opened) / key_of(1)
    folder.mkdir()
    for file in (secret / key_of(1)).iterdir():
        shutil.copy(file, folder)


def _cache_is_a_file(opened: Opened, secret: Path) -> None:
    shutil.rmtree(triton(opened))
    triton(opened).write_text("no directory")


def _cache_is_a_fifo(opened: Opened, secret: Path) -> None:
    shutil.rmtree(triton(opened))
    os.mkfifo(triton(opened))


def _everything_is_gone(opened: Opened, secret: Path) -> None:
    shutil.rmtree(opened.inner / "cache")
    shutil.rmtree(opened.inner / "tmp")


def _files_are_odd(opened: Opened, secret: Path) -> None:
    folder = write_triton_entry(triton(opened), 1)
    (folder / "add.cubin").unlink()
    os.mkfifo(folder / "add.cubin")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(triton(opened))  # a socket's path may have 107 characters
        try:
            made.bind("socket")
        finally:
            os.chdir(here)


def _files_are_huge(opened: Opened, secret: Path) -> None:
    folder = write_triton_entry(triton(opened), 1)
    os.truncate(folder / "add.cubin", 1 << 40)


def _tree_is_deep(opened: Opened, secret: Path) -> None:
    here = os.open(triton(opened), os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("down", dir_fd=here)
        below = os.open("down", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def _rights_are_gone(opened: Opened, secret: Path) -> None:
    (opened.inner / "tmp" / "a" / "b").mkdir(parents=True)
    (opened.inner / "tmp" / "a").chmod(0)
    opened.inner.chmod(0o500)


TRICKS: list[Trick] = [
    *(_cache_is_a_link, _all_caches_are_a_link, _entry_is_a_link, _files_are_links, _group_names_the_secret),
    *(_cache_is_a_file, _cache_is_a_fifo, _everything_is_gone, _files_are_odd, _files_are_huge, _tree_is_deep),
    _rights_are_gone,
]


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
def test_no_trick_publishes_or_escapes(program: Program, shared_store: Path, place: Path, trick: Trick) -> None:
    """The secret is a whole, good entry of somebody else's: what must not travel is not refused for being broken."""
    secret = place / "secret"
    write_triton_entry(secret, 1, name="secret")
    opened = open_room(program, shared_store, place)
    trick(opened, secret)
    closed = opened.close()
    assert closed.status == 0, closed
    assert "error in Ondol itself" not in closed.stderr, closed
    assert "secret" not in titles(shared_store), closed
    assert titles(shared_store) == set()
    assert list(secret.rglob("__grp__secret.json"))
    assert rooms_in(place) == []
    assert program.job(shared_store, "next", options=("--room-dir", str(place))).status == 0


@pytest.mark.parametrize("name", [room.OPEN, room.OWNER, room.OPENER, "kept", "left", "closing", "members/x", "failed"])
def test_note_inside_the_room_is_not_believed(program: Program, shared_store: Path, place: Path, name: str) -> None:
    """The very file that close reads, one level deeper, with another store, scope and policy in it."""
    opened = open_room(program, shared_store, place, "--publish", "never")
    fields = records.real(json.loads((opened.path / room.OPEN).read_text()))
    fields["settings"] |= {"publish": Value("on-success", "forged"), "scope": Value("main", "forged")}
    forged = opened.inner / name
    forged.parent.mkdir(exist_ok=True)
    forged.write_text(json.dumps(records.plain(fields)))
    assert program.run(standin(program, "one"), env=opened.env).returncode == 0
    closed = opened.close()
    assert closed.report["publish_decision"] == "publish = never"
    assert titles(shared_store) == set()
    assert rooms_in(place) == []


def test_room_of_somebodys_making_is_not_closed(program: Program, shared_store: Path, place: Path) -> None:
    """A directory of the right name in a public place, with a note in it that asks us to publish what is inside."""
    real = open_room(program, shared_store, place)
    assert program.run(standin(program, "forged"), env=real.env).returncode == 0
    forged = place / f"{room.PREFIX}forged"
    real.path.rename(forged)
    forged.chmod(0o777)
    done = program.ondol("close", str(forged), "--status", "0")
    assert "does not belong to this user alone" in done.stderr
    link = place / f"{room.PREFIX}link"
    link.symlink_to(forged)
    done = program.ondol("close", str(link), "--status", "0")
    assert "there is no open room" in done.stderr
    assert titles(shared_store) == set()


@needs_root
@pytest.mark.root
def test_room_of_another_user_is_not_closed(program: Program, shared_store: Path, place: Path) -> None:
    """Root, in the belief that it is its own."""
    theirs = open_room(program, shared_store, place, uid=1234)
    done = program.ondol("close", str(theirs.path), "--status", "0")
    assert "does not belong to this user alone" in done.stderr
    assert theirs.path.exists()


@needs_root
@pytest.mark.root
def test_files_that_we_may_not_delete_do_not_hold_up_the_next_job(
    program: Program, shared_store: Path, place: Path
) -> None:
    """A container's root left them in the room of an ordinary user. They stay, it is said whose they are, and root cleans."""
    opened = open_room(program, shared_store, place, "--at", "/ondol/room", uid=1234)
    precious = opened.inner / "tmp" / "theirs"
    precious.mkdir(mode=0o700)
    (precious / "file").touch()
    write_triton_entry(triton(opened), 1, name="unreadable")
    for path in triton(opened).rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    closed = opened.close()
    assert closed.status == 0, closed
    assert "ondol gc tells whose" in closed.stderr
    assert titles(shared_store) == set()
    for _ in range(2):
        job = program.job(shared_store, "next", options=("--room-dir", str(place)), uid=1234)
        assert (job.status, job.warnings) == (0, []), job
    told = program.ondol("gc", "--room-dir", str(place), uid=1234)
    assert f"cannot be removed: {opened.path} holds files of uid 0" in told.stdout
    assert "sudo ondol gc" in told.stdout
    told = program.ondol("gc", "--room-dir", str(place))
    assert f"removed {opened.path}" in told.stdout
    assert rooms_in(place) == []


@needs_root
@pytest.mark.root
def test_open_room_lets_no_other_user_of_the_machine_in(program: Program, shared_store: Path, place: Path) -> None:
    """Inside it is open to every UID of the container; on this side of the wall nobody gets that far."""
    opened = open_room(program, shared_store, place, "--at", "/ondol/room", uid=1234)
    assert opened.inner.stat().st_mode & 0o777 == 0o777
    for action in (f"ls {opened.inner}", f"touch {opened.inner}/tmp/x", f"cat {opened.path}/open"):
        assert program.run(["sh", "-c", action], uid=1235).returncode != 0
    assert opened.close().status == 0


@needs_root
@pytest.mark.root
def test_room_for_another_user_can_be_used_by_it(program: Program, shared_store: Path, place: Path) -> None:
    """Without a mount: root gives the inside away; the note beside it stays root's."""
    opened = open_room(program, shared_store, place, "--uid", "1234")
    done = program.run(standin(program, "one"), uid=1234, env=opened.env)
    assert done.returncode == 0, done.stderr
    assert program.run(["cat", f"{opened.path}/open"], uid=1234).returncode != 0
    assert program.run(["touch", f"{opened.path}/new"], uid=1234).returncode != 0
    assert program.run(["ls", str(opened.inner)], uid=1235).returncode != 0
    closed = opened.close("0", "--trust", "1234")
    assert closed.triton["published"] == 1, closed
    assert rooms_in(place) == []


def test_room_for_another_user_without_root_is_not_opened_to_everybody(
    program: Program, shared_store: Path, place: Path
) -> None:
    how: dict[str, Any] = {"uid": 1234} if os.geteuid() == 0 else {}
    other = "1235" if os.geteuid() != 1235 else "1236"
    words = ["open", "--store", str(shared_store), "--room-dir", str(place), "--uid", other]
    done = program.ondol(*words, **how)
    assert done.returncode == 2
    assert "only root can give files away" in done.stderr
    assert rooms_in(place) == []
