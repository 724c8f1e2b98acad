"""Rooms across a real container's wall: other users inside than outside, no network, a store that cannot be written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from people import ROOT, Program, needs_root
from walls import bare_tree
from walls.podman import Podman
from walls.rooms import PULL_REQUEST, PULL_REQUEST_SCOPE, open_room, rooms_in, titles

pytestmark = [needs_root, pytest.mark.root]


class Machine:
    """A podman and a small image for it."""

    def __init__(self, podman: Podman, python: str) -> None:
        self.podman = podman
        self.python = python

    def standin(self, options: list[str], *kernels: str) -> dict[str, int]:
        done = self.podman.run(options, self.python, "/standin.py", *kernels)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def machine(public: Path, pyz: Path) -> Iterator[Machine]:
    tree, state = public / "image", public / "podman"
    state.mkdir()
    python = bare_tree.build(tree)
    shutil.copy(ROOT / "tests" / "programs" / "standin.py", tree)
    shutil.copy(pyz, tree)
    podman = Podman(state, tree)
    why = podman.why_not(python)
    if why:
        pytest.skip(why)
    yield Machine(podman, python)
    shutil.rmtree(tree, ignore_errors=True)
    shutil.rmtree(state, ignore_errors=True)


#: What the container is told about users → the UID that this machine sees.
MAPPED = ["--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]
USERS = {
    "root": ([], 0),
    "uid 1000": (["--user", "1000:1000"], 1000),
    "uid without a name": (["--user", "4321:0"], 4321),
    "mapped root": (MAPPED, 100000),
    "mapped uid 1000": ([*MAPPED, "--user", "1000:1000"], 101000),
}


def flags_for(program: Program, store: Path, place: Path, *options: str, **how: object) -> tuple[list[str], str]:
    file = place / "room-file"
    words = ["open", "--store", str(store), "--tools", "triton", "--room-dir", str(place), "--format", "podman"]
    done = program.ondol(*words, "--room-file", str(file), *options, **how)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), file.read_text().strip()


@pytest.mark.parametrize("given", [False, True], ids=["anybody", "given"])
@pytest.mark.parametrize("user", USERS)
def test_container_with_another_user_is_warm(
    machine: Machine, program: Program, shared_store: Path, place: Path, user: str, given: bool
) -> None:
    """Filled for it, used by it, written by it, harvested and removed by us; with --uid it even owns the room."""
    options, uid = USERS[user]
    mine = ["--uid", str(uid)] if given else []
    flags, room = flags_for(program, shared_store, place, *mine)
    assert machine.standin([*flags, *options], "one", "two")["compiled"] == 2
    closed = program.ondol("close", room, "--status", "0", "--trust", str(uid))
    assert "2 new, 2 published" in closed.stderr, closed
    flags, room = flags_for(program, shared_store, place, *mine)
    assert machine.standin([*flags, *options], "one", "two", "three") == {
        "hits": 2,
        "compiled": 1,
        "cache": "/ondol/room/cache/triton",
    }
    closed = program.ondol("close", room, "--status", "0", "--trust", str(uid))
    assert "2 filled, 2 used, 1 new, 1 published" in closed.stderr, closed
    assert titles(shared_store) == {"one", "two", "three"}
    assert rooms_in(place) == []


def test_entry_from_a_container_is_not_bound_to_its_path(
    machine: Machine, program: Program, shared_store: Path, place: Path
) -> None:
    """Made at /ondol/room, used at /elsewhere/caches, and by a job on this side: a hit every time."""
    flags, room = flags_for(program, shared_store, place)
    machine.standin(flags, "one")
    assert program.ondol("close", room, "--status", "0").returncode == 0
    flags, room = flags_for(program, shared_store, place, "--at", "/elsewhere/caches")
    assert machine.standin(flags, "one")["hits"] == 1
    assert program.ondol("close", room, "--status", "0").returncode == 0
    assert program.job(shared_store, "one").hits == 1


def test_roots_files_in_an_ordinary_users_room_are_not_lost(
    machine: Machine, program: Program, shared_store: Path, place: Path
) -> None:
    """As docker does it: the room is a CI user's, in the container is root. What can be read is published."""
    flags, room = flags_for(program, shared_store, place, uid=1234)
    machine.standin(flags, "one")
    closed = program.ondol("close", room, "--status", "0", uid=1234)
    assert (closed.returncode, "1 new, 1 published" in closed.stderr) == (0, True), closed
    assert "ondol gc tells whose" in closed.stderr
    assert titles(shared_store) == {"one"}
    job = program.job(shared_store, "one", options=("--room-dir", str(place)), uid=1234)
    assert (job.hits, job.warnings) == (1, [])
    assert "holds files of uid 0" in program.ondol("gc", "--room-dir", str(place), uid=1234).stdout
    assert program.ondol("gc", "--room-dir", str(place)).returncode == 0
    assert rooms_in(place) == []


def test_pull_request_in_a_container_does_not_reach_the_store(
    machine: Machine, program: Program, shared_store: Path, place: Path
) -> None:
    """The store is not there at all for what runs inside; close on this side decides by the event."""
    flags, room = flags_for(program, shared_store, place, env=PULL_REQUEST)
    machine.standin(flags, "one")
    code = f"import os; print(os.path.exists({str(shared_store)!r}), sorted(os.listdir('/ondol/room')))"
    assert machine.podman.run(flags, machine.python, "-c", code).stdout == "False ['cache', 'tmp']\n"
    assert program.ondol("close", room, "--status", "0", env=PULL_REQUEST).returncode == 0
    assert (titles(shared_store), titles(shared_store, PULL_REQUEST_SCOPE)) == (set(), {"one"})


def test_trap_that_a_container_leaves_catches_nobody(
    machine: Machine, program: Program, shared_store: Path, place: Path
) -> None:
    """Root inside plants links, devices and setuid files; what it can make there is all it can do."""
    trap = """
import os, stat
cache = "/ondol/room/cache/triton"
os.rmdir(cache)
os.symlink("/", cache)
os.mkfifo("/ondol/room/tmp/fifo")
os.mkfifo("/ondol/room/open")
try: os.mknod("/ondol/room/tmp/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
except PermissionError: pass
open("/ondol/room/tmp/setuid", "w").close()
os.chmod("/ondol/room/tmp/setuid", 0o4755)
os.symlink("/etc", "/ondol/room/tmp/etc")
os.chmod("/ondol/room", 0o000)
"""
    flags, room = flags_for(program, shared_store, place)
    done = machine.podman.run(flags, machine.python, "-c", trap)
    assert done.returncode == 0, done.stderr
    closed = program.ondol("close", room, "--status", "0")
    assert closed.returncode == 0, closed
    assert "error in Ondol itself" not in closed.stderr
    assert titles(shared_store) == set()
    assert rooms_in(place) == []
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize("user", ["root", "uid 1000", "uid without a name"])
def test_job_inside_on_a_read_only_store_is_warm(
    machine: Machine, program: Program, shared_store: Path, place: Path, user: str
) -> None:
    """One file, mounted; the store mounted read-only; no network, no HOME: everything that is there is used."""
    assert program.job(shared_store, "one").compiled == 1
    mounts = ["--volume", f"{shared_store}:/store:ro", *USERS[user][0]]
    run = [machine.python, "/ondol.pyz", "run", "--store", "/store", "--tools", "triton", "--publish", "never", "--"]
    done = machine.podman.run(mounts, *run, machine.python, "/standin.py", "one", "two")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hits"] == 1, done.stderr
    assert "warning" not in done.stderr


def test_running_container_does_not_lose_its_room(
    machine: Machine, program: Program, shared_store: Path, place: Path
) -> None:
    """Older than any open room may get, and no process here names it: but a container still stands in it."""
    import os
    import subprocess
    import time

    from ondol.room import room as rooms

    opened = open_room(program, shared_store, place, "--at", "/ondol/room")
    old = time.time() - rooms.OPEN_AGE - 60
    os.utime(opened.path / rooms.OPEN, (old, old))
    script = f"mount --bind {opened.inner} /mnt && echo in && cat"
    inside = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert inside.stdout is not None
    assert inside.stdin is not None
    try:
        assert inside.stdout.readline() == "in\n"
        rooms.sweep(str(place))
        assert opened.path.exists()
    finally:
        inside.stdin.close()
        inside.stdout.read()
        inside.stdout.close()
        inside.wait()
    rooms.sweep(str(place))
    assert not opened.path.exists()


@pytest.mark.real
def test_real_triton_in_a_container_is_warm(
    program: Program, machine: Machine, shared_store: Path, public: Path, place: Path
) -> None:
    """Two containers as uid 1000 with this machine's whole tree as image: the second compiles nothing."""
    kernels = place / "kernels.py"
    shutil.copy(ROOT / "examples" / "demo" / "kernels.py", kernels)
    whole = Podman(place, Path("/:O"))
    said = []
    for _ in range(2):
        flags, room = flags_for(program, shared_store, place)
        env = [
            word for name, value in program.env(HOME="/nonexistent").items() for word in ("--env", f"{name}={value}")
        ]
        done = whole.run([*flags, *env, "--user", "1000:1000"], program.python, str(kernels), "1")
        assert done.returncode == 0, done.stderr
        closed = program.ondol("close", room, "--status", "0", "--trust", "1000")
        assert closed.returncode == 0
        said.append((json.loads(done.stdout), closed.stderr))
    (first, published), (second, used) = said
    assert first["compiled"] > 0, said
    assert second["compiled"] == 0, said
    assert "0 published" not in published
    assert "0 new" in used
