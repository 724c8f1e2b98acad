"""What strangers plant in a shared store is never read: the same checks that the sabotage suite breaks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.planted_files import planting_violations, stranger_violations

pytestmark = pytest.mark.fault


def test_nothing_planted_by_hand_is_read(fast_place: Path) -> None:
    """Open lanes, open packs, links, and (as root) foreign owners under our own name are no evidence of anything."""
    assert planting_violations(fast_place) == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_what_a_stranger_publishes_is_not_read(fast_place: Path) -> None:
    """A user whom nobody named publishes for itself alone."""
    assert stranger_violations(fast_place) == []
