"""GPU checks share the runner of `tests/fleet` and are skipped, with the reason, where there is no GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from ondol.fleet.devices import nvidia_count

_SPEC = importlib.util.spec_from_file_location("fleet_conftest", Path(__file__).parents[1] / "fleet" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules["fleet_conftest"] = _MODULE
_SPEC.loader.exec_module(_MODULE)
suite = _MODULE.suite


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = "no NVIDIA GPU on this machine" if not nvidia_count() else ""
    missing = missing or ("" if importlib.util.find_spec("triton") else "triton is not installed")
    missing = missing or ("" if importlib.util.find_spec("torch") else "torch is not installed")
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing))
