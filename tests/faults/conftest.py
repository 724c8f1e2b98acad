"""A fast place for thousands of small stores, and the count of points at which the run has struck."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.crash_points import TALLY


@pytest.fixture
def fast_place(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory where there is such a thing."""
    if not os.access("/dev/shm", os.W_OK | os.X_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="ondol-faults-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def cheap_forks() -> None:
    """Thousands of children are forked: what is here now shall not be moved by a collection, and so stay shared."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(TALLY.values()):
        terminalreporter.write_line(f"crash points: {TALLY['kills']} kills, {TALLY['errors']} errors")
