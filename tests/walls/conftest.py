"""Stores and places that other users and containers can reach."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.store import marker
from walls import one_file


@pytest.fixture(scope="session")
def pyz(public: Path) -> Path:
    """Ondol as one file: for reading."""
    return Path(one_file.build(public / "ondol.pyz"))


@pytest.fixture
def place(public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty directory that every user can write in, as /tmp; pytest's own are private to their user."""
    path = public / f"walls-{abs(hash(request.node.nodeid))}"
    path.mkdir()
    path.chmod(0o1777)
    yield path
    subprocess.run(["rm", "-rf", path], check=False)  # also trees that are too deep for Python's own


@pytest.fixture
def shared_store(place: Path) -> Path:
    path = place / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    return path
