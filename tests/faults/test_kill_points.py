"""SIGKILL before, after and half-way through every system call of everything that writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.operations import OPERATIONS, Operation
from faults.strikes import kill_violations

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_kill_anywhere_breaks_nothing_and_blocks_nothing(operation: Operation, fast_place: Path) -> None:
    """Whatever call a process is killed at, the store verifies, and the same work can be done again."""
    assert kill_violations(operation, fast_place) == []
