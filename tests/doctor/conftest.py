"""Directories of every user, and mounts, undone afterwards."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor_runs import Doctor, Said
from people import Program


@pytest.fixture
def doctor(program: Program) -> Doctor:
    """`ondol doctor ARGUMENTS --json` as any user."""

    def run(*arguments: Path | str, **how: Any) -> Said:
        return Said(program.ondol("doctor", *map(str, arguments), "--json", **how))

    return run


@pytest.fixture
def place(public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory that all users can reach and nobody else can write; mounts on `place/mnt` are undone."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:80]
    path = public / f"doctor-{name}"
    path.mkdir()
    path.chmod(0o755)
    yield path
    subprocess.run(["umount", "-q", "-l", str(path / "mnt")], check=False, capture_output=True)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def mounted(place: Path) -> Callable[[str], Path]:
    """A tmpfs with these options."""

    def mount(options: str) -> Path:
        path = place / "mnt"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "none", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        return path

    return mount
