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
from collections.abc import Callable
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


def _truncate(pack: Path, _other: bytes) -> None:
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])


def _empty(pack: Path, _other: bytes) -> None:
    pack.write_bytes(b"")


def _replace(pack: Path, other: bytes) -> None:
    pack.write_bytes(other)


DAMAGES: dict[str, Callable[[Path, bytes], None]] = {"truncated": _truncate, "emptied": _empty, "replaced": _replace}


class Warmed:
    """A store that one job has filled. Tests that write get a copy."""

    def __init__(self, real: Real, store: Path, *arguments: str, **env: Any) -> None:
        self.real, self.store, self.arguments, self.env = real, store, arguments, env
        done = real.program.ondol("store", "init", str(store), "--writers", str(UID))
        assert done.returncode == 0, done.stderr
        self.cold = real.job(store, *arguments, **env)
        assert (self.cold.status, self.cold.reused, self.cold.warnings) == (0, 0, []), self.cold
        assert self.cold.made > 0, self.cold

    def copy(self, where: Path) -> Path:
        subprocess.run(["cp", "-a", self.store, where], check=True)
        return where

    def stays_warm(self, uid: int | None = None) -> None:
        """In another room, as this user: nothing is made, all is reused, the answer is the same."""
        warm = self.real.job(self.store, *self.arguments, options=("--require-warm",), uid=uid, **self.env)
        assert (warm.status, warm.made, warm.reused, warm.warnings) == (0, 0, self.cold.made, []), warm
        assert warm.said["answer"] == self.cold.said["answer"]
        assert f"ondol: {self.real.tool}: " in warm.stderr
        assert " 0 new" in warm.stderr

    def survives_damage(self, where: Path) -> None:
        """Every stored entry truncated, emptied or replaced by another one's pack, in turn: each is a miss, and the
        command never notices. With fewer than three entries, so many runs that each kind of damage is met."""
        packs = len(list(self.store.rglob("*.pack")))
        for first in range(0, len(DAMAGES), packs):
            self._survives(self.copy(where / f"damaged-{first}"), first)

    def _survives(self, store: Path, first: int) -> None:
        packs = sorted(store.rglob("*.pack"))
        contents = [pack.read_bytes() for pack in packs]
        others = [*contents[1:], b"not a pack at all"]
        for number, (pack, other) in enumerate(zip(packs, others, strict=True)):
            list(DAMAGES.values())[(first + number) % len(DAMAGES)](pack, other)
        run = self.real.job(store, *self.arguments, **self.env)
        assert (run.status, run.made, run.reused) == (0, self.cold.made, 0), run
        assert run.said["answer"] == self.cold.said["answer"]
        assert len(run.warnings) == 1, run
        assert f"{len(packs)} bad {self.real.tool} pack(s)" in run.warnings[0]


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
