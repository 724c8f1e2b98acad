"""SIGKILL before, after and half-way through every system call of everything that writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import lean
from faults.operations import BY_NAME

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("operation", BY_NAME)
def test_kill_anywhere_breaks_nothing_and_blocks_nothing(operation: str, fast_place: Path) -> None:
    """Whatever call a process is killed at, the store verifies, and the same work can be done again."""
    assert lean.kill_violations(operation, fast_place) == []
