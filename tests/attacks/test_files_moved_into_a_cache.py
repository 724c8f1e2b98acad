"""Somebody moves a private file of root's into a cache that a group shares, and waits for `sudo ondol doctor --fix`."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from handmade import write_triton_entry
from people import Program, needs_root

pytestmark = pytest.mark.warm

MEMBER = 1001


@pytest.fixture
def cache(public: Path, tmp_path: Path) -> Iterator[Path]:
    path = public / tmp_path.name
    write_triton_entry(path, 1)
    for folder, _, names in os.walk(path):
        os.chown(folder, MEMBER, MEMBER)
        os.chmod(folder, 0o2770)
        for name in names:
            os.chown(os.path.join(folder, name), MEMBER, MEMBER)
            os.chmod(os.path.join(folder, name), 0o660)
    yield path
    shutil.rmtree(path)


def private(path: Path) -> Path:
    path.write_text("a secret of root's")
    path.chmod(0o600)
    return path


@needs_root
def test_private_file_of_roots_stays_private(program: Program, cache: Path, tmp_path: Path) -> None:
    secret = private(tmp_path / "secret")
    moved = cache / "secret"
    secret.rename(moved)
    os.chown(moved, 0, MEMBER)  # as a setgid directory gives it, or as it was
    done = program.ondol("doctor", "--fix", "--only", "modes", str(cache))
    assert stat.S_IMODE(moved.stat().st_mode) == 0o600, done.stdout
    assert "left alone" in done.stdout, done.stdout
    assert "moved it here" in done.stdout
    assert "chmod g+rw {}" not in done.stdout, "nor is root told to open it by hand without a look"
