"""Our own failures never keep a command from running, never take its status, and never look like a verdict."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ondol import exitcodes
from ondol.cli.main import COMMANDS
from ondol.guard.lock_parts import SUFFIX
from people import ROOT, Program, needs_root

pytestmark = pytest.mark.warm

#: Breaks one thing of ours before our program starts.
BREAKING = """
import runpy, sys
import {module} as broken
def fail(*_, **__):
    raise RuntimeError("broken on purpose")
{target} = fail
sys.argv = ["ondol", *sys.argv[1:]]
runpy.run_module("ondol", run_name="__main__", alter_sys=True)
"""

Broken = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def broken(program: Program, tmp_path: Path) -> Broken:
    def run(module: str, target: str, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        script = BREAKING.format(module=module, target=target)
        env = program.env(HOME=str(tmp_path))
        command = [sys.executable, "-c", script, *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload]

    return run


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("ondol.trust.settings", "broken.load"),
        ("ondol.jobs.job", "broken.location"),
        ("ondol.host.identity", "broken.this_host"),
        ("ondol.report.progress", "broken.ProgressBar.__init__"),
        ("ondol.jobs.before", "broken.prepare"),
        ("ondol.jobs.after", "broken.conclude"),
        ("ondol.jobs.after", "broken.final_status"),
        ("ondol.jobs.after", "broken.leave"),
        ("ondol.report.terminal", "broken.lines"),
        ("ondol.cli.output", "broken.write_json"),
    ],
)
@pytest.mark.parametrize("status", [0, 3])
def test_command_of_run_is_not_lost_to_a_bug_of_ours(
    broken: Broken, tmp_path: Path, module: str, target: str, status: int
) -> None:
    said = str(tmp_path / "said.json")
    done = broken(module, target, "run", "--json", said, "--", "sh", "-c", f"echo it ran; exit {status}")
    assert (done.returncode, done.stdout) == (status, "it ran\n"), done.stderr
    assert "broken on purpose" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("ondol.guard.guarded_command", "broken.CacheLock"),
        ("ondol.guard.guarded_command", "broken.standard_input.look"),
        ("ondol.guard.guarded_command", "broken.CacheLock.release"),
        ("ondol.explain.match", "broken.judge"),
        ("ondol.cli.guard", "broken._conclude"),
    ],
)
@pytest.mark.parametrize("status", [0, 3])
def test_command_of_guard_is_not_lost_to_a_bug_of_ours(
    broken: Broken, tmp_path: Path, module: str, target: str, status: int
) -> None:
    words = ("guard", "--cache", str(tmp_path), "--", "sh", "-c", f"echo it ran; exit {status}")
    done = broken(module, target, *words)
    assert (done.returncode, done.stdout) == (status, "it ran\n"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"run", "guard", "store"}))
def test_bug_of_ours_does_not_look_like_a_verdict(broken: Broken, name: str) -> None:
    """1 says `errors were found`, `nothing known`, `corrupt`; 2 says `your command line is wrong`. A bug is neither."""
    module, function = COMMANDS[name][0].split(".")
    done = broken(f"ondol.cli.{module}", f"broken.{function}", *name.split())
    assert done.returncode == exitcodes.INTERNAL, done.stderr
    assert "broken on purpose" in done.stderr
    assert "Traceback" not in done.stderr


def test_strict_job_does_not_run_after_a_bug_of_ours(broken: Broken) -> None:
    done = broken("ondol.trust.settings", "broken.load", "run", "--strict", "--", "echo", "it ran")
    assert (done.returncode, done.stdout) == (exitcodes.INTERNAL, "")


@pytest.mark.parametrize("words", [("run",), ("guard", "--cache", "/var/tmp")], ids=["run", "guard"])
def test_working_directory_is_gone(program: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    ondol = f"{sys.executable} -m ondol {' '.join(words)} -- sh -c 'echo it ran; exit 3'"
    done = program.run(["sh", "-c", f"cd {gone} && rmdir {gone} && {ondol}"], env={"HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (3, "it ran\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert "an error in Ondol itself" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("config",), ("tools",), ("gc",), ("doctor", "--only", "user"), ("store", "ls")],
    ids=lambda words: words[0],
)
def test_working_directory_is_gone_for_other_commands(program: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    ondol = f"{sys.executable} -m ondol {' '.join(words)}"
    done = program.run(["sh", "-c", f"cd {gone} && rmdir {gone} && {ondol}"], env={"HOME": str(tmp_path)})
    assert done.returncode != exitcodes.INTERNAL, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["os.O_PATH", "os.memfd_create", "os.sched_getaffinity"])
def test_system_without_what_only_linux_has(program: Program, tmp_path: Path, missing: str) -> None:
    """The command runs, and the room it had is removed."""
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    start = f"import os, runpy, sys; del {missing}; sys.argv = ['ondol', *sys.argv[1:]]; "
    start += "runpy.run_module('ondol', run_name='__main__', alter_sys=True)"
    command = ["run", "--room-dir", str(rooms), "--", "sh", "-c", "echo it ran; exit 3"]
    done = program.run([sys.executable, "-c", start, *command], env={"HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (3, "it ran\n"), done.stderr
    assert "an error in Ondol itself" not in done.stderr
    assert os.listdir(rooms) == []


def test_package_is_not_whole(program: Program, tmp_path: Path) -> None:
    """An installation that was cut off, or is replaced at this moment."""
    package = tmp_path / "own" / "ondol"
    shutil.copytree(ROOT / "src" / "ondol", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "jobs" / "before.py").unlink()
    env = {"PYTHONPATH": str(package.parent), "HOME": str(tmp_path)}
    done = program.run([sys.executable, "-m", "ondol", "run", "--", "sh", "-c", "echo it ran; exit 3"], env=env)
    assert (done.returncode, done.stdout) == (3, "it ran\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_selftest_of_a_cache_that_is_not_ours_is_a_verdict_of_its_own(program: Program, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("a file")
    done = program.ondol("guard", "--cache", str(there), "--selftest")
    assert done.returncode == exitcodes.USAGE, done.stderr
    assert "not a directory" in done.stderr


@pytest.mark.parametrize("cache", ["/etc/passwd", "/", "/./"])
def test_guard_of_what_can_be_no_cache(program: Program, cache: str) -> None:
    done = program.ondol("guard", "--cache", cache, "--", "echo", "it ran")
    assert (done.returncode, done.stdout) == (exitcodes.USAGE, ""), done.stderr
    # Of ours: others of this machine make and remove directories there, the readers of the pages in tests/docs.
    assert [name for folder in ("/", "/etc") for name in os.listdir(folder) if name.endswith(SUFFIX)] == []


@pytest.mark.parametrize("mistyped", ["mispelt", "no/such/way"])
def test_misspelt_cache_is_not_made(program: Program, tmp_path: Path, mistyped: str) -> None:
    """Said once; neither the directory is made, nor a lock beside it; the command runs."""
    done = program.ondol("guard", "--cache", str(tmp_path / mistyped), "--", "sh", "-c", "exit 5")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith(f"ondol: warning: the cache {tmp_path}/{mistyped} does not exist")) == (
        5,
        True,
    )
    assert list(tmp_path.iterdir()) == []
    done = program.ondol("guard", "--cache", str(tmp_path / mistyped), "--selftest")
    assert (done.returncode, list(tmp_path.iterdir())) == (exitcodes.USAGE, []), done.stderr


def test_cache_that_the_first_command_makes_is_not_in_its_way(program: Program, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = program.ondol("guard", "--cache", str(cache), "--", "mkdir", str(cache))
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (0, ["cache"]), done.stderr
    assert program.ondol("guard", "--cache", str(cache), "--", "true").stderr == ""


@needs_root
def test_selftest_where_nothing_can_be_written(program: Program, public: Path) -> None:
    done = program.ondol("guard", "--cache", "/usr/share", "--selftest", uid=1001)
    assert done.returncode == exitcodes.USAGE, done.stderr
    assert "/usr/share" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("source", ["flag", "variable"])
def test_the_signing_key_is_not_left_to_a_command_that_runs_without_us(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    named = {"ONDOL_SIGN_KEY": "env:SECRET"} if source == "variable" else {}
    monkeypatch.setattr(Program, "env", lambda _, **extra: {**os.environ, "SECRET": "s3cret", **extra, **named})
    flags = ["--sign-key", "env:SECRET"] if source == "flag" else []
    done = broken("ondol.jobs.job", "broken.location", "run", *flags, "--", "sh", "-c", "echo key=$SECRET.")
    assert (done.returncode, done.stdout) == (0, "key=.\n"), done.stderr
    assert "running as without Ondol" in done.stderr
