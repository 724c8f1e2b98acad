"""One life for every real tool: cold, published, warm in another room, warm as another user, and with every stored entry
damaged.

A program under `tests/programs` does a little work with the tool and ends with one line of JSON: `made` and `reused`
are the tool's own evidence (its counters, its listener, its files), `answer` is what it computed. A test module says
which tool and which program, and asks for the steps that it wants.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ondol.tools import registry, table
from people import ROOT, Program

UID = 1000
TOOLS = ROOT / ".build" / "tools"


class Run:
    """What one run of a program said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        last = done.stdout.strip().rpartition("\n")[2]
        self.said: dict[str, Any] = json.loads(last) if last.startswith("{") else {}

    @property
    def made(self) -> int:
        return int(self.said["made"])

    @property
    def reused(self) -> int:
        return int(self.said["reused"])

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("ondol: warning:")]

    def __repr__(self) -> str:
        return f"Run({self.status}, {self.stdout[-2000:]!r}, {self.stderr[-4000:]!r})"


class Real:
    """A real tool and a program that uses it, for any user, with or without Ondol."""

    def __init__(self, program: Program, python: str, path: list[str], tool: str, script: str) -> None:
        self.program, self.python, self.path, self.tool = program, python, path, tool
        self.script = str(program.programs / script)

    def command(self, *arguments: str) -> list[str]:
        # The tool's packages are for its own Python alone; Ondol's own path is in PYTHONPATH already.
        path = os.pathsep.join([*self.path, *self.program.path])
        return ["env", f"PYTHONPATH={path}", self.python, self.script, *arguments]

    def plain(self, cache: Path, *arguments: str, uid: int | None = None, **env: str) -> Run:
        """Without Ondol, on this cache directory."""
        row = registry.choose([self.tool])[0]
        variables = table.plan(row, {}, str(cache), asked=True).env
        return self._run(self.command(*arguments), uid, {**variables, **env})

    def job(
        self, store: Path, *arguments: str, options: tuple[str, ...] = (), uid: int | None = None, **env: str
    ) -> Run:
        """Under `ondol run`, in a fresh room."""
        ondol = [self.program.python, "-m", "ondol", "run", "--store", str(store), "--tools", self.tool, *options, "--"]
        return self._run([*ondol, *self.command(*arguments)], uid, env)

    def _run(self, command: list[str], uid: int | None, env: dict[str, str]) -> Run:
        return Run(self.program.run(command, uid=uid, env={"HOME": "/nonexistent", **env}))


def warms(real: Real, store: Path, *arguments: str, uid: int | None = None, **env: str) -> Run:
    """Cold makes some and publishes them; another room, or another user's, makes none. Returns the cold run."""
    cold = real.job(store, *arguments, **env)
    assert (cold.status, cold.reused, cold.warnings) == (0, 0, []), cold
    assert cold.made > 0, cold
    stays_warm(real, store, cold, *arguments, uid=uid, **env)
    return cold


def stays_warm(real: Real, store: Path, cold: Run, *arguments: str, uid: int | None = None, **env: str) -> None:
    warm = real.job(store, *arguments, options=("--require-warm",), uid=uid, **env)
    assert (warm.status, warm.made, warm.reused, warm.warnings) == (0, 0, cold.made, []), warm
    assert warm.said["answer"] == cold.said["answer"]
    assert f"ondol: {real.tool}: " in warm.stderr
    assert " 0 new" in warm.stderr


def _truncate(pack: Path, _other: bytes) -> None:
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])


def _empty(pack: Path, _other: bytes) -> None:
    pack.write_bytes(b"")


def _replace(pack: Path, other: bytes) -> None:
    pack.write_bytes(other)


DAMAGES: dict[str, Callable[[Path, bytes], None]] = {"truncated": _truncate, "emptied": _empty, "replaced": _replace}


def survives_damage(real: Real, store: Path, cold: Run, *arguments: str, **env: str) -> None:
    """Every stored entry truncated, emptied, replaced by another one's pack: each is a miss, the command never notices."""
    for kind, damage in DAMAGES.items():
        copy = store.with_name(f"{store.name}-{kind}")
        subprocess.run(["cp", "-a", store, copy], check=True)
        packs = sorted(copy.rglob("*.pack"))
        assert packs
        contents = [pack.read_bytes() for pack in packs]
        for pack, other in zip(packs, [*contents[1:], b"not a pack at all"], strict=True):
            damage(pack, other)
        run = real.job(copy, *arguments, **env)
        assert (run.status, run.made, run.reused) == (0, cold.made, 0), (kind, run)
        assert run.said["answer"] == cold.said["answer"]
        assert len(run.warnings) == 1, (kind, run)
        assert f"{len(packs)} bad {real.tool} pack(s)" in run.warnings[0]
        shutil.rmtree(copy)


@pytest.fixture(scope="session")
def tools(program: Program, public: Path) -> tuple[str, list[str]]:
    """(a Python that every user can execute, its extra path) with the tools of tests/tools-requirements.txt."""
    python = TOOLS / "bin" / "python"
    assert python.exists(), "make test installs it; for pytest alone: make .build/tools"
    check = [str(python), "-c", "import numpy"]
    try:
        if os.geteuid() != 0 or program.run(check, uid=65534).returncode == 0:
            return str(python), []
    except PermissionError:  # a checkout in somebody's home
        pass
    packages = next(TOOLS.glob("lib/python3*/site-packages"))
    copy = public / "tools"
    if subprocess.run(["cp", "-rL", "--link", packages, copy], capture_output=True, check=False).returncode:
        shutil.copytree(packages, copy, dirs_exist_ok=True)
    return "/usr/bin/python3", [str(copy)]


@pytest.fixture
def store(program: Program, public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A store of root's into which `UID` may publish too."""
    path = public / f"store-{abs(hash(request.node.nodeid))}"
    done = program.ondol("store", "init", str(path), "--writers", str(UID))
    assert done.returncode == 0, done.stderr
    yield path
    shutil.rmtree(path, ignore_errors=True)
