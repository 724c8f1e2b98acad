"""The places and disks of the fault tests, for breaking things on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.conftest import fast_place
from faults.crash_points import TALLY
from faults.disk_images import ext4

__all__ = ["ext4", "fast_place"]


@pytest.fixture(autouse=True)
def uncounted() -> Iterator[None]:
    """Points struck in broken code are not among those that the code is said to have survived."""
    before = dict(TALLY)
    yield
    TALLY.update(before)
