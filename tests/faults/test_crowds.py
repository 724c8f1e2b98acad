"""Producers of one key that disagree: readers see one of them, whole, and always the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.crowds import crowd_violations, replacement_violations
from ondol.store import marker

pytestmark = pytest.mark.fault


@pytest.fixture
def empty_store(fast_place: Path) -> Path:
    marker.create(str(fast_place / "store"), marker.Writers(), shared=True)
    return fast_place / "store"


def test_second_producer_replaces_nothing(empty_store: Path) -> None:
    """The first producer's entry stays, and the second is told so."""
    assert replacement_violations(empty_store) == []


def test_killed_and_living_producers_never_mix(empty_store: Path) -> None:
    """Two hundred producers of the same keys, most killed at a random call: no mixture, no change, no bad pack, ever."""
    assert crowd_violations(empty_store) == []
