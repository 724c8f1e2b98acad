"""A store whose marker, root or `lanes` others than its owner can change: nobody's word, so nobody reads it."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from handmade import make_entry
from ondol.errors import StoreError
from ondol.jobs.open_store import judge
from ondol.store import marker, pack
from ondol.store.directory import DirectoryStore
from people import Program, needs_root

pytestmark = pytest.mark.warm

STRANGER = 12345
#: Which of it, and a mode with which others can change it.
OPEN = [("", 0o777), ("", 0o775), ("", 0o2775), (marker.NAME, 0o666), (marker.NAME, 0o664), (marker.NAME, 0o646)]
OPEN += [(marker.LANES, 0o777), (marker.LANES, 0o775), (marker.LANES, 0o2770)]
#: Ways to share that are fine: a sticky directory, whose names only their owners can change.
CLOSED = [("", 0o1777), ("", 0o2755), (marker.LANES, 0o1775), (marker.LANES, 0o3777), (marker.NAME, 0o600)]


@pytest.fixture
def shared(public: Path, tmp_path: Path, program: Program) -> Path:
    path = public / tmp_path.name / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    assert program.job(path, "a").compiled == 1
    return path


@pytest.mark.parametrize(("name", "mode"), OPEN)
def test_what_others_can_change_is_refused(program: Program, shared: Path, name: str, mode: int) -> None:
    """The job runs cold and says what to type; doctor says the same; typed, the store is warm again."""
    (shared / name).chmod(mode)
    job = program.job(shared, "a")
    assert (job.status, job.hits, len(job.warnings)) == (0, 0, 1), job
    assert f"{mode:04o}" in job.warnings[0]
    told = program.ondol("doctor", "--store", str(shared), "--only", "store", "--json", str(shared))
    (finding,) = [one for one in json.loads(told.stdout)["findings"] if one["check"] == "store"]
    assert (told.returncode, finding["severity"], finding["where"]["path"]) == (
        1,
        "error",
        str(shared / name).rstrip("/"),
    )
    assert f"(fix: {finding['fix']})" in job.warnings[0]
    subprocess.run(shlex.split(finding["fix"]), check=True)
    assert program.job(shared, "a").hits == 1
    told = program.ondol("doctor", "--store", str(shared), "--only", "store", "--json", str(shared))
    assert json.loads(told.stdout)["findings"] == []


@pytest.mark.parametrize(("name", "mode"), OPEN)
def test_doctor_closes_it_for_its_owner(program: Program, shared: Path, name: str, mode: int) -> None:
    (shared / name).chmod(mode)
    program.ondol("doctor", "--store", str(shared), "--only", "store", "--fix", str(shared))
    assert program.job(shared, "a").hits == 1


@pytest.mark.parametrize(("name", "mode"), CLOSED)
def test_what_only_its_owner_can_change_is_used(program: Program, shared: Path, name: str, mode: int) -> None:
    (shared / name).chmod(mode)
    job = program.job(shared, "a")
    assert (job.hits, job.warnings) == (1, []), job


def test_commands_refuse_it_too(program: Program, shared: Path) -> None:
    shared.chmod(0o2775)
    for command in (["ls"], ["verify"], ["stats"], ["gc", "--max-size", "0"]):
        done = program.ondol("store", *command, "--store", str(shared))
        assert (done.returncode, f"chmod go-w {shared}" in done.stderr) == (3, True), done
    shared.chmod(0o755)
    assert program.job(shared, "a").hits == 1, "gc removed nothing from a store that it refused"


@needs_root
@pytest.mark.root
def test_stranger_who_names_himself_a_writer_is_not_believed(program: Program, shared: Path) -> None:
    """The whole attack: a marker of root's that was left 0666, and a stranger who edits it in place."""
    (shared / marker.NAME).chmod(0o666)
    text = (shared / marker.NAME).read_text().replace('"any": false', '"any": true')
    program.run(["tee", str(shared / marker.NAME)], uid=STRANGER, input=text)
    evil = make_entry(1, b"planted")
    put = shared / "lanes" / f"{STRANGER}-1"
    folder = put.joinpath(*evil.address[:3])
    folder.mkdir(parents=True)
    (folder / f"{evil.address.key}.pack").write_bytes(pack.encode(evil))
    for path in [put, *put.rglob("*")]:
        os.chown(path, STRANGER, STRANGER)
    with pytest.raises(StoreError, match="can be changed by everybody"):
        DirectoryStore(str(shared), judge([]))
    told = program.ondol("run", "--store", str(shared), "--tools", "triton", "--", "true")
    assert f"fix: chmod go-w {shared / marker.NAME}" in told.stderr


@needs_root
@pytest.mark.root
def test_fix_for_somebody_elses_store_asks_for_root(program: Program, shared: Path) -> None:
    shared.chmod(0o777)
    told = program.ondol("run", "--store", str(shared), "--tools", "triton", "--", "true", uid=2001)
    assert f"fix: sudo chmod go-w {shared}" in told.stderr


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
@pytest.mark.parametrize("parent", [0o755, 0o2775])
def test_store_that_we_make_is_never_one_that_we_refuse(
    program: Program, public: Path, tmp_path: Path, umask: int, parent: int
) -> None:
    """Under any umask, and below a directory that a group shares with setgid, as sites do."""
    above = public / tmp_path.name
    above.mkdir()
    above.chmod(parent)
    store = above / "store"
    done = program.ondol("store", "init", str(store), umask=umask)
    assert done.returncode == 0, done.stderr
    assert not stat.S_IMODE(store.stat().st_mode) & 0o022
    assert program.job(store, "a", umask=umask).warnings == []
    assert program.job(store, "a", umask=umask).hits == 1
    home = {"HOME": str(above / "home"), "XDG_CACHE_HOME": str(above / "home" / "cache")}
    for hits in (0, 1):
        own = program.ondol(
            *("run", "--tools", "triton", "--", program.python, str(program.programs / "standin.py"), "a"),
            umask=umask,
            env=home,
        )
        assert (json.loads(own.stdout)["hits"], "warning" in own.stderr) == (hits, False), own


@needs_root
@pytest.mark.root
def test_store_is_not_made_where_others_can_change_it(program: Program, public: Path, tmp_path: Path) -> None:
    """A directory that is not ours and open to all: `init` says so, and makes nothing."""
    path = public / tmp_path.name
    path.mkdir()
    path.chmod(0o777)
    done = program.ondol("store", "init", str(path), uid=2001)
    assert (done.returncode, "chmod go-w" in done.stderr, os.listdir(path)) == (3, True, []), done
