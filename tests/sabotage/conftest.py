"""The places and disks of the fault tests, for breaking things on."""

from __future__ import annotations

from faults.conftest import fast_place
from faults.imaging import ext4

__all__ = ["ext4", "fast_place"]
