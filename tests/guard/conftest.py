"""Real uv and pip on caches of their own, with an index on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wheelhouse
from people import Program
from uv_caches import PACKAGES, Uv, build, warm


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("index")
    wheelhouse.make_index(folder, PACKAGES)
    with wheelhouse.serving(folder) as address:
        yield address


@pytest.fixture(scope="session")
def uv_program(public: Path) -> Callable[[str], Path]:
    """A uv of the given version that every user can execute."""

    def get(name: str) -> Path:
        path = public / name / "uv"
        if not path.exists():
            path.parent.mkdir()
            shutil.copy(build(name) / "bin" / "uv", path)
        return path

    return get


@pytest.fixture
def uv(program: Program, uv_program: Callable[[str], Path], index: str, tmp_path: Path) -> Uv:
    """The newest uv, on a cache that holds all packages."""
    return warm(Uv(program, uv_program("uv"), tmp_path / "cache", index, tmp_path))
