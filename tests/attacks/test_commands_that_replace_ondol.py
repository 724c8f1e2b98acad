"""A command that removes or replaces the very Ondol that runs it: `uv sync`, `pip install -U`, `rm -rf .venv`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from people import ROOT, Program

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An Ondol of our own to lose."""
    shutil.copytree(ROOT / "src" / "ondol", tmp_path / "own" / "ondol", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "own" / "ondol"


@pytest.fixture
def own(program: Program, package: Path) -> Run:
    def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        env = program.env(PYTHONPATH=str(package.parent), HOME=str(package.parent))
        command = [sys.executable, "-m", "ondol", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload]

    return run


REMOVED = 'rm -rf "$0"'
#: What a newer Ondol is to an older one: modules of the same names with other contents.
REPLACED = """find "$0" -name '*.py' | while read file; do echo 'raise SystemExit(77)' > "$file"; done"""
DAMAGES = pytest.mark.parametrize("damage", [REMOVED, REPLACED], ids=["removed", "replaced"])


@DAMAGES
@pytest.mark.parametrize("status", [0, 3])
def test_command_that_takes_ondol_away_keeps_its_status(own: Run, package: Path, damage: str, status: int) -> None:
    done = own("run", "--", "sh", "-c", f"{damage}; exit {status}", str(package))
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


@DAMAGES
def test_what_such_a_command_compiled_is_published_all_the_same(
    own: Run, program: Program, package: Path, store_path: Path, damage: str
) -> None:
    compile_one = f"{sys.executable} {program.programs / 'standin.py'} add"
    words = ("run", "--store", str(store_path), "--tools", "triton", "--")
    done = own(*words, "sh", "-c", f"{compile_one} && {damage}", str(package))
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert program.job(store_path, "add").hits == 1


@DAMAGES
@pytest.mark.parametrize("status", [0, 3])
def test_guarded_command_that_takes_ondol_away_keeps_its_status(
    own: Run, package: Path, tmp_path: Path, damage: str, status: int
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    words = ("guard", "--cache", str(cache), "--json", str(tmp_path / "said.json"), "--")
    done = own(*words, "sh", "-c", f"{damage}; exit {status}", str(package))
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


@DAMAGES
def test_retried_command_that_takes_ondol_away_keeps_its_status(own: Run, package: Path, damage: str) -> None:
    done = own("run", "--retries", "1", "--", "sh", "-c", f"{damage}; exit 3", str(package))
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr


@DAMAGES
def test_reports_of_a_command_that_takes_ondol_away_are_written(
    own: Run, package: Path, tmp_path: Path, damage: str
) -> None:
    """The step summary is written after the command too."""
    summary = tmp_path / "summary.md"
    words = ("run", "--json", str(tmp_path / "said.json"), "-v", "--")
    script = f"{damage}; exit 5"
    done = own(*words, "env", f"GITHUB_STEP_SUMMARY={summary}", "sh", "-c", script, str(package))
    assert done.returncode == 5, done.stderr
    assert (tmp_path / "said.json").exists()
