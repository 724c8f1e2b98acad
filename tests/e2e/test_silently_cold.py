"""A job that is cold because entries were passed over, and does not say so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from handmade import make_entry
from ondol.host import files
from ondol.job_report import JobReport
from ondol.jobs import after
from ondol.jobs.job import Job
from ondol.store import lane, marker, pack
from ondol.store.directory import DirectoryStore
from ondol.tools import registry
from people import Program, needs_root

pytestmark = pytest.mark.warm

ALICE, BOB = 2001, 2002


@pytest.fixture
def shared(public: Path, tmp_path: Path) -> Path:
    """A store that names no writers, as `ondol store init` makes it."""
    path = public / tmp_path.name / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    return path


def passed_over(store: Path, count: str, owner: int, why: str) -> str:
    return f"ondol: {count} of uid {owner} passed over: {why}; `ondol doctor {store}`"


@needs_root
@pytest.mark.root
def test_passing_over_entries_of_an_untrusted_user_is_said(program: Program, shared: Path) -> None:
    assert program.job(shared, "a", "b", uid=ALICE).compiled == 2
    report = shared.parent / "report.json"
    cold = program.job(shared, "a", "b", options=("--json", str(report), "--publish", "never"))
    assert (cold.status, cold.hits, cold.warnings) == (0, 0, []), cold
    assert passed_over(shared, "2 entries", ALICE, "not trusted") in cold.stderr.splitlines()
    assert json.loads(report.read_text())["passed_over"] == [{"owner": ALICE, "why": "not trusted", "entries": 2}]
    assert program.job(shared, "a", options=("--quiet", "--publish", "never")).stderr == ""
    told = program.ondol("doctor", str(shared), "--store", str(shared))
    assert f"lanes of uid {ALICE} are not read" in told.stdout + told.stderr
    trusting = program.job(shared, "a", "b", options=("--trust", str(ALICE)))
    assert trusting.hits == 2
    assert "passed over" not in trusting.stderr


@needs_root
@pytest.mark.root
def test_entries_of_other_tools_and_scopes_are_counted(program: Program, shared: Path) -> None:
    program.job(shared, "a", uid=ALICE, options=("--scope", "elsewhere"))
    done = program.ondol("run", "--store", str(shared), "--tools", "jax", "--scope", "elsewhere", "--", "/bin/true")
    assert "passed over" not in done.stderr
    assert "passed over" not in program.job(shared, "b").stderr


def test_passing_over_entries_whose_lane_others_can_write_is_said(program: Program, shared: Path) -> None:
    """What a `chmod -R g+w` over the whole cache does: 1 filled before, 0 after."""
    assert program.job(shared, "a").compiled == 1
    (mine,) = (shared / "lanes").iterdir()
    mine.chmod(0o775)
    cold = program.job(shared, "a", options=("--publish", "never"))
    assert cold.hits == 0
    why = "others can write in their lane"
    assert passed_over(shared, "1 entry", os.geteuid(), why) in cold.stderr.splitlines()


def test_each_reason_is_told_with_what_to_type(program: Program, shared: Path) -> None:
    program.job(shared, "a")
    program.job(shared, "b", options=("--scope", "mine"))
    where = ("--store", str(shared))
    program.ondol("store", "require-signature", "mine", *where)
    program.ondol("store", "revoke", "--scope", "main", "--why", "by mistake", *where)
    done = program.job(shared, "a", "b", options=("--scope", "mine", "--publish", "never"))
    told = [line for line in done.stderr.splitlines() if "passed over: " in line]
    assert len(told) == 2, done
    assert any("passed over: unsigned (fix: publish it again" in line for line in told)
    assert any("passed over: revoked: " in line and "by mistake" in line and "revoke --list" in line for line in told)


def test_crowd_of_strangers_neither_fills_the_summary_nor_costs_the_job(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger makes what he likes in his lane: so much is looked at, and no more."""
    opened: list[str] = []
    real = files.open_below

    def counted(top: int, path: str) -> int:
        opened.append(path)
        return real(top, path)

    monkeypatch.setattr(files, "open_below", counted)
    for number in range(40):
        folder = shared / "lanes" / f"0-{number:032x}" / "main" / "triton"
        for fingerprint in range(40):
            made = folder / f"any{fingerprint}"
            made.mkdir(parents=True)
            for key in range(3):
                (made / f"{key}.pack").touch()
    store = DirectoryStore(str(shared), lambda _marker: lambda _owner, _scope="": False)
    ((owner, why, entries),) = store.passed_over({"triton"}, ["main", "mine"])
    assert (owner, why) == (os.geteuid(), "not trusted")
    assert 100 < entries <= lane.LOOKED_AT
    assert len(opened) <= lane.LOOKED_AT


def test_link_in_a_strangers_lane_is_not_followed(shared: Path, tmp_path: Path) -> None:
    entry = make_entry(1)
    folder = tmp_path / "elsewhere" / "triton" / entry.address.fingerprint
    folder.mkdir(parents=True)
    (folder / f"{entry.address.key}.pack").write_bytes(pack.encode(entry))
    (shared / "lanes" / "0-x").mkdir()
    (shared / "lanes" / "0-x" / "main").symlink_to(tmp_path / "elsewhere")
    store = DirectoryStore(str(shared), lambda _marker: lambda _owner, _scope="": False)
    assert store.passed_over({"triton"}, ["main"]) == []


def test_a_command_that_did_not_get_its_variables_is_told_apart_from_one_without_kernels(
    program: Program, shared: Path, tmp_path: Path
) -> None:
    """As tox, sudo and bazel start programs: compiled into the user's own cache, and "nothing new" here."""
    words = ["run", "--store", str(shared), "--", "env", "-i", f"HOME={tmp_path}", f"PATH={os.environ['PATH']}"]
    standin = [program.python, str(program.programs / "standin.py"), "a"]
    cold = program.ondol(*words, *standin, env={"HOME": str(tmp_path)})
    assert cold.returncode == 0
    told = [line for line in cold.stderr.splitlines() if f"{tmp_path}/.triton/cache was written to" in line]
    assert len(told) == 1, cold.stderr
    assert "TRITON_CACHE_DIR did not reach it: tell tox (pass_env)" in told[0]
    again = program.ondol(*words[:3], "--require-warm", *words[3:], *standin[:-1], "b", env={"HOME": str(tmp_path)})
    assert (again.returncode, f"whatever was written to {tmp_path}/.triton/cache" in again.stderr) == (122, True)
    quiet = program.ondol(*words, "true", env={"HOME": str(tmp_path)})
    assert "was written to" not in quiet.stderr
    passed_on = program.job(shared, "a", env={"HOME": str(tmp_path)})
    assert (passed_on.compiled, "was written to" in passed_on.stderr) == (1, False)


def test_versions_inside_a_cache_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "0.1.15" / "linux").mkdir(parents=True)
    times = [tmp_path, tmp_path / "0.1.15", tmp_path / "0.1.15" / "linux"]
    for path in times:
        os.utime(path, (1000, 1000))
    assert not after._changed_since(1000, str(tmp_path))
    for path in times:
        os.utime(path, (1001, 1001))
        assert after._changed_since(1000, str(tmp_path))
        os.utime(path, (1000, 1000))
    assert not after._changed_since(1000, str(tmp_path / "missing"))


@pytest.mark.parametrize(("used", "accused"), [(0, True), (3, False), (None, False)])
def test_a_tool_is_named_only_if_its_room_is_known_to_be_unused(
    tmp_path: Path, used: int | None, accused: bool
) -> None:
    """None: the room's file system keeps no access times, so what was filled may have served."""
    (tmp_path / ".triton" / "cache").mkdir(parents=True)
    report = JobReport(["true"], "", "main")
    report.update("triton", filled=3, used=used)
    rows = registry.choose(["triton"])
    job = SimpleNamespace(ended=None, report=report, managed=rows, env={"HOME": str(tmp_path)})
    report.run_seconds = 60.0
    after._look_elsewhere(cast(Job, job))
    assert bool(report.remarks) is accused
