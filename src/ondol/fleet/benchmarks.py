"""What pytest-benchmark measured in a worker, brought home to the controller's, which prints, saves and compares it.

It keeps its results in the process. They ride along with the report of their test, as plain values.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

#: Rides along with a serialised report.
KEY = "ondol_benchmarks"
#: What the plugin takes from the fixture that measured.
_FIELDS = ("name", "fullname", "group", "param", "params", "extra_info")


def take(config: pytest.Config) -> list[dict[str, Any]]:
    """In the worker: what was measured since the last report."""
    found: list[Any] = getattr(getattr(config, "_benchmarksession", None), "benchmarks", None) or []
    taken = [{**{name: getattr(one, name) for name in _FIELDS}, **_measured(one)} for one in found]
    found.clear()
    return taken


def _measured(one: Any) -> dict[str, Any]:
    plain = {name: value for name, value in one.options.items() if isinstance(value, (bool, int, float, str))}
    return {"data": list(one.stats.data), "iterations": one.iterations, "options": plain, "failed": one.has_error}


def bring_home(config: pytest.Config, taken: list[dict[str, Any]]) -> None:
    """In the controller: as if measured here. A test that was tried again counts with its last attempt."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or not taken:
        return
    from pytest_benchmark.stats import Metadata

    for one in taken:
        fixture = SimpleNamespace(cprofile_stats=None, has_error=one["failed"], **{name: one[name] for name in _FIELDS})
        made = Metadata(fixture, one["iterations"], {**session.options, **one["options"]})
        for seconds in one["data"]:
            made.stats.update(seconds)
        session.benchmarks = [other for other in session.benchmarks if other.fullname != made.fullname] + [made]
