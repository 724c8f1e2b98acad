"""A neighbour reads what another user's tests printed, or leads their journal elsewhere by a link."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ondol import exitcodes
from ondol.fleet import journals
from people import Program

pytestmark = pytest.mark.warm

Ondol = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ondol" / "journals"


@pytest.fixture
def ondol(program: Program, tmp_path: Path, state: Path) -> Ondol:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "test_one.py").write_text("def test_one():\n    print('a secret')\n")

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        here = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp"), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
        return program.run([sys.executable, "-m", "ondol", *words], env={**here, **env}, cwd=tmp_path, umask=0)

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_journal_can_be_read_and_guessed_by_nobody_else(ondol: Ondol, state: Path, tmp_path: Path) -> None:
    done = ondol("test", "--devices", "cpu:1", "test_one.py")
    assert done.returncode == 0, done.stdout + done.stderr
    (journal,) = state.iterdir()
    assert (mode(journal), mode(state)) == (0o600, 0o700)
    assert str(journal) in done.stdout
    assert not [name for name in os.listdir(tmp_path / "tmp") if "journal" in name]


@pytest.mark.parametrize("planted", ["link", "dangling link", "fifo", "second name"])
def test_journal_is_not_written_through_what_somebody_planted(ondol: Ondol, tmp_path: Path, planted: str) -> None:
    victim, journal = tmp_path / "victim", tmp_path / "journal"
    if planted != "dangling link":
        victim.write_text("precious")
    if planted == "fifo":
        os.mkfifo(journal)
    elif planted == "second name":
        os.link(victim, journal)
    else:
        journal.symlink_to(victim)
    done = ondol("test", "--devices", "cpu:1", "--journal", str(journal), "test_one.py")
    assert done.returncode not in (0, exitcodes.INTERNAL), done.stdout
    assert "journal" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert (victim.read_text() if victim.exists() else "") == ("" if planted == "dangling link" else "precious")


def test_folder_that_others_can_write_is_not_used_for_journals(state: Path, tmp_path: Path) -> None:
    """A directory that others can write is not ours alone: a private one with a name that nobody can guess is made."""
    state.mkdir(parents=True)
    state.chmod(0o777)
    path = journals.new_path()
    assert path.parent != state
    assert mode(path.parent) == 0o700


def test_latest_run_is_found(ondol: Ondol, state: Path) -> None:
    assert ondol("report", "latest").returncode == exitcodes.USAGE
    assert ondol("test", "--devices", "cpu:1", "test_one.py").returncode == 0
    said = ondol("report", "latest")
    assert said.returncode == 0, said.stderr
    assert "1 passed" in said.stdout


def test_journals_do_not_pile_up(state: Path, ondol: Ondol) -> None:
    path = journals.new_path()
    now = 2_000_000_000.0
    ages = [3600.0, 2 * 86400.0, 29 * 86400.0, 31 * 86400.0, 400 * 86400.0]
    for age in ages:
        old = path.with_name(f"{age}.jsonl")
        old.write_text("{}")
        os.utime(old, (now - age, now - age))
    assert len(journals.clean(now, dry_run=True)) == 2
    assert len(list(state.iterdir())) == 5
    journals.clean(now)
    assert sorted(entry.name for entry in state.iterdir()) == ["172800.0.jsonl", "2505600.0.jsonl", "3600.0.jsonl"]
    for number in range(journals.MOST + 10):
        many = path.with_name(f"many-{number}.jsonl")
        many.write_text("{}")
        os.utime(many, (now - 3 * 86400, now - 3 * 86400))
    journals.clean(now)
    assert len(list(state.iterdir())) == journals.MOST
    large = path.with_name("large.jsonl")
    with open(large, "wb") as file:
        file.truncate(journals.LARGEST + 1)
    os.utime(large, (now - 2.5 * 86400, now - 2.5 * 86400))
    journals.clean(now)
    assert sorted(entry.name for entry in state.iterdir()) == ["172800.0.jsonl", "3600.0.jsonl"]
    os.utime(path.with_name("3600.0.jsonl"), (0, 0))
    said = ondol("gc")
    assert "1 journal" in said.stdout, said.stdout + said.stderr
