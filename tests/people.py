"""Other users: run our program as any UID, with any umask, from places that they can reach."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from warm import WarmOndol

ROOT = Path(__file__).parent.parent
STANDIN = "standin.py"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")


@pytest.fixture(scope="session")
def public() -> Iterator[Path]:
    """A directory that every user can reach, removed at the end (pytest's own are private to their user)."""
    path = Path(tempfile.mkdtemp(prefix="ondol-tests-", dir="/tmp"))  # a TMPDIR may be private
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Program:
    """Our program and a Python, executable by every user."""

    def __init__(self, python: str, path: list[str], programs: Path) -> None:
        self.python = python
        self.path = path
        self.programs = programs
        self.warm: WarmOndol | None = None  # only in tests that are marked so

    def env(self, **extra: str) -> dict[str, str]:
        base = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(self.path), "TRITON_DEFAULT_FP_FUSION": "1"}
        measured = {name: os.environ[name] for name in ("COVERAGE_PROCESS_CONFIG",) if name in os.environ}
        return {**base, **measured, "PYTHONDONTWRITEBYTECODE": "1", **extra}

    def ondol(
        self,
        *arguments: str,
        uid: int | None = None,
        umask: int = -1,
        cwd: Path | str = "/",
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """`ondol ARGUMENTS` as this user; never raises."""
        return self.run([self.python, "-m", "ondol", *arguments], uid=uid, umask=umask, cwd=cwd, env=env, **options)

    def run(
        self,
        command: list[str],
        uid: int | None = None,
        umask: int = -1,
        cwd: Path | str = "/",
        env: dict[str, str] | None = None,
        timeout: float = 240,
        limits: dict[int, int] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """`limits`: what it may have of a resource, as `resource` names it."""
        variables = self.env(**(env or {}))
        if self.warm and not options and command[:3] == [self.python, "-m", "ondol"] and self.warm.can(variables):
            return self.warm.ondol(command[3:], uid, umask, str(cwd), variables, limits or {}, timeout)
        if limits:
            options["preexec_fn"] = partial(_limit, limits)
        return subprocess.run(
            command,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            umask=umask,
            cwd=cwd,
            env=variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    def works_for_others(self, python: str) -> bool:
        """Whether every user can execute this interpreter."""
        try:
            return self.run([python, "-c", "import sys"], uid=65534).returncode == 0
        except PermissionError:  # in somebody's home
            return False

    def job(self, store: Path | str, *kernels: str, options: tuple[str, ...] = (), **how: Any) -> Job:
        """A job on this store that uses these kernels, with the stand-in for Triton."""
        program = [self.python, "-S", str(self.programs / STANDIN), *kernels]
        done = self.ondol("run", "--store", str(store), "--tools", "triton", *options, "--", *program, **how)
        return Job(done)


def _limit(limits: dict[int, int]) -> None:
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


class Job:
    """What a job said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.stdout, self.stderr = done.stdout, done.stderr
        self.said: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}

    @property
    def hits(self) -> int:
        return int(self.said["hits"])

    @property
    def compiled(self) -> int:
        return int(self.said["compiled"])

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("ondol: warning:")]

    def __repr__(self) -> str:
        return f"Job({self.status}, {self.stdout!r}, {self.stderr!r})"


@pytest.fixture(scope="session")
def program(public: Path) -> Program:
    """Ours if other users can execute it where it is; else a copy of what it needs, in a public place."""
    programs = public / "programs"
    shutil.copytree(ROOT / "tests" / "programs", programs)
    here = Program(sys.executable, [str(ROOT / "src")], programs)
    if os.geteuid() != 0 or _works_for_others(here):
        return here
    return _copy(public, programs)


@pytest.fixture(scope="session")
def _warm_ondol(program: Program) -> Iterator[WarmOndol]:
    made = WarmOndol(program.python, program.programs / "warm_ondol.py", program.env())
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _started_warm(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `pytest.mark.warm`, `ondol …` costs a fork instead of a start. To measure coverage it has to start."""
    if request.node.get_closest_marker("warm") is None or "COVERAGE_PROCESS_CONFIG" in os.environ:
        yield
        return
    program = request.getfixturevalue("program")
    program.warm = request.getfixturevalue("_warm_ondol")
    yield
    program.warm = None


def _works_for_others(candidate: Program) -> bool:
    try:
        probe = candidate.run([candidate.python, "-c", "import ondol.jobs.run_command, zstandard"], uid=65534)
    except PermissionError:  # an interpreter in somebody's home
        return False
    return probe.returncode == 0


def _copy(public: Path, programs: Path) -> Program:
    """The checkout or its interpreter is in somebody's home: hard links cost nothing, copies a few seconds."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    for source, name in ((packages, "site-packages"), (str(ROOT / "src"), "src")):
        command = ["cp", "-rL", "--link", source, str(public / name)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            shutil.rmtree(public / name, ignore_errors=True)
            shutil.copytree(source, public / name)
    copied = Program("/usr/bin/python3", [str(public / "src"), str(public / "site-packages")], programs)
    if not _works_for_others(copied):
        version = ".".join(map(str, sys.version_info[:2]))
        pytest.skip(f"no Python {version} on this machine can be executed by other users (use the system's own)")
    return copied
