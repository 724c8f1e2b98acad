"""Whatever is wrong with the store, the command runs, its status is its own, and one warning says why and the fix."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ondol.store import marker
from people import Job, Program, needs_root

pytestmark = pytest.mark.warm

#: A user that is not root: root may read and write everything, so for root half of these troubles do not exist.
UID = 1000 if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
def place(public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path = public / f"trouble-{request.node.name.replace('[', '-').strip(']')}"
    path.mkdir()
    os.chown(path, UID, -1)
    yield path
    subprocess.run(["umount", "-q", str(path / "store")], check=False, capture_output=True)


def new_store(path: Path, owner: int = UID) -> Path:
    marker.create(str(path), marker.Writers(), shared=True)
    if os.geteuid() == 0:
        for item in [path, *path.rglob("*")]:
            os.chown(item, owner, -1)
    return path


def missing(place: Path) -> Path:
    return place / "store"


def not_a_store(place: Path) -> Path:
    (place / "store").mkdir()
    return place / "store"


def a_file(place: Path) -> Path:
    (place / "store").write_text("I am a file")
    return place / "store"


def unreadable(place: Path) -> Path:
    path = new_store(place / "store", owner=0 if os.geteuid() == 0 else UID)
    path.chmod(0o700 if os.geteuid() == 0 else 0o000)
    return path


def future_format(place: Path) -> Path:
    path = new_store(place / "store")
    fields = json.loads((path / marker.NAME).read_text())
    (path / marker.NAME).write_text(json.dumps({**fields, "format": 99}))
    return path


def damaged_marker(place: Path) -> Path:
    path = new_store(place / "store")
    (path / marker.NAME).write_text('{"format": 1')
    return path


def marker_is_a_pipe(place: Path) -> Path:
    path = new_store(place / "store")
    (path / marker.NAME).unlink()
    os.mkfifo(path / marker.NAME)
    return path


def no_lanes(place: Path) -> Path:
    path = new_store(place / "store")
    (path / "lanes").rmdir()
    return path


TROUBLES: list[tuple[Callable[[Path], Path], str, str]] = [
    (missing, "no such directory", "ondol store init"),
    (not_a_store, "it has no ondol-store.json", "ondol store init"),
    (a_file, "Not a directory", "move that file away"),
    (unreadable, "Permission denied", "chmod"),
    (future_format, "has format 99", "pip install --upgrade ondol"),
    (damaged_marker, "is damaged", "ondol store init"),
    (marker_is_a_pipe, "not a regular file", "readable"),
    (no_lanes, "No such file or directory", "ondol store init"),
]


@pytest.mark.parametrize("status", [0, 5])
@pytest.mark.parametrize(("trouble", "cause", "fix"), TROUBLES, ids=[t[0].__name__ for t in TROUBLES])
def test_store_trouble_does_not_fail_the_job(
    program: Program, place: Path, trouble: Callable[[Path], Path], cause: str, fix: str, status: int
) -> None:
    store = trouble(place)
    done = program.ondol("run", "--store", str(store), "--", "sh", "-c", f"echo ran; exit {status}", **as_uid())
    job = Job(done)
    assert (job.status, job.stdout) == (status, "ran\n")
    assert len(job.warnings) == 1, job
    assert cause in job.warnings[0]
    assert fix in job.warnings[0]


def as_uid() -> dict[str, Any]:
    return {"uid": UID} if os.geteuid() == 0 else {}


@pytest.mark.parametrize(("trouble", "cause", "fix"), TROUBLES, ids=[t[0].__name__ for t in TROUBLES])
def test_strict_does_not_let_trouble_pass(
    program: Program, place: Path, trouble: Callable[[Path], Path], cause: str, fix: str
) -> None:
    done = program.ondol("run", "--store", str(trouble(place)), "--strict", "--", "echo", "ran", **as_uid())
    assert (done.returncode, done.stdout) == (123, "")
    assert cause in done.stderr


def test_read_only_store_does_not_fail_the_publisher(program: Program, place: Path) -> None:
    """Hits hit, misses compile, nothing is written, and one warning says that nothing could be published."""
    store = new_store(place / "store")
    assert program.job(store, "one", **as_uid()).compiled == 1
    for folder in [store, *(path for path in store.rglob("*") if path.is_dir())]:
        folder.chmod(0o555)
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", str(store), str(store)], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(store)], check=True)
    before = sorted(str(path) for path in store.rglob("*"))
    job = program.job(store, "one", "two", **as_uid())
    assert (job.status, job.hits, job.compiled) == (0, 1, 1)
    assert len(job.warnings) == 1
    assert "--publish never" in job.warnings[0] or "mode 1777" in job.warnings[0]
    assert sorted(str(path) for path in store.rglob("*")) == before
    quiet = program.job(store, "one", "two", options=("--publish", "never"), **as_uid())
    assert (quiet.hits, quiet.warnings) == (1, [])


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("limit", ["size=80k", "nr_inodes=9"])
def test_full_store_does_not_fail_the_publisher(program: Program, place: Path, limit: str) -> None:
    store = place / "store"
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", limit, "none", str(store)], check=True)
    new_store(store)
    kernels = [f"kernel{number}" for number in range(60)]
    job = program.job(store, *kernels, uid=UID)
    assert (job.status, job.compiled) == (0, 60)
    assert len(job.warnings) == 1, job
    assert "No space left on device" in job.warnings[0]
    assert "ondol store gc" in job.warnings[0]
    checked = program.ondol("store", "verify", "--store", str(store), uid=UID)
    assert checked.returncode == 0, checked.stdout
    assert program.job(store, *kernels, uid=UID).status == 0


@needs_root
@pytest.mark.root
def test_store_that_hangs_does_not_hold_the_job(program: Program, place: Path) -> None:
    """A dead file server: opening never returns. The job starts all the same, cold, after the time it was given."""
    from ondol_hang import hanging_mount

    store = place / "store"
    with hanging_mount(store):
        done = program.ondol("run", "--store", str(store), "--store-timeout", "1s", "--", "echo", "ran")
    job = Job(done)
    assert (job.status, job.stdout) == (0, "ran\n")
    assert len(job.warnings) == 1
    assert "too slow" in job.warnings[0]
    assert "--store-timeout" in job.warnings[0]


def test_unwritable_json_report_does_not_fail_the_job(program: Program, place: Path) -> None:
    store = new_store(place / "store")
    done = program.ondol("run", "--store", str(store), "--json", "/no/such/dir/x.json", "--", "true", **as_uid())
    assert done.returncode == 0
    assert "the report could not be written" in done.stderr


def test_no_room_anywhere_does_not_fail_the_job(program: Program, place: Path) -> None:
    """Without a room the command runs as it would without us."""
    store = new_store(place / "store")
    code = (
        "import sys; from ondol.room import choose; choose.candidates = lambda *_: [choose.Candidate('/proc', 'test')];"
        "from ondol.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["run", "--store", str(store), "--", "sh", "-c", "echo ${TRITON_CACHE_DIR-unset} ${ONDOL_ROOM-unset}"]
    done = program.run([program.python, "-c", code, *arguments])
    assert (done.returncode, done.stdout) == (0, "unset unset\n")
    assert "running without a room" in done.stderr
    assert "--room-dir" in done.stderr


@pytest.mark.parametrize(
    "broken",
    [
        "ondol.tools.table.plan",
        "ondol.room.room.sweep",
        "ondol.room.harvest.new_entries",
        "ondol.room.harvest.usage",
    ],
)
def test_bug_of_ours_does_not_fail_the_job(program: Program, place: Path, broken: str) -> None:
    """Any exception in any step of ours: the command runs, ends as it likes, and the place of the bug is named."""
    store = new_store(place / "store")
    program.job(store, "warm", **as_uid())
    module, _, name = broken.rpartition(".")
    code = f"""
import importlib, sys
def bug(*_, **__): raise RuntimeError("a bug")
try: target = importlib.import_module({module!r})
except ImportError: target = getattr(importlib.import_module({module.rpartition(".")[0]!r}), {module.rpartition(".")[2]!r})
setattr(target, {name!r}, bug)
from ondol.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    standin = [program.python, str(program.programs / "standin.py"), "warm", "new"]
    command = ["run", "--store", str(store), "--", "sh", "-c", '"$@"; exit 7', "sh", *standin]
    job = Job(program.run([program.python, "-c", code, *command], env={"HOME": str(place)}, **as_uid()))
    assert job.status == 7, job
    assert job.hits + job.compiled == 2
    assert "RuntimeError: a bug" in job.warnings[0]
