"""A pytest plugin for plain runs: when collection ended, and each test's outcome, line by line in $BENCH_EVENTS.

A run that is cut off leaves what it had. Needs nothing but pytest, because it is loaded by suites of other people.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest


def _tell(**event: Any) -> None:
    with open(os.environ["BENCH_EVENTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"t": time.time(), **event}) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    _tell(e="collected", items=len(session.items))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.skipped else "xpassed"
    elif report.failed and report.when != "call":
        outcome = "error"
    if report.when == "call" or outcome != "passed":
        _tell(e="verdict", item=report.nodeid, verdict=outcome)


def pytest_sessionfinish(exitstatus: int) -> None:
    _tell(e="over", status=int(exitstatus))
