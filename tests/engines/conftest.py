"""A pytest suite that is run on nodes of one machine: each is a command that starts a node program here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from suites import Suite


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    made = Suite(tmp_path)
    made.warm = "COVERAGE_PROCESS_CONFIG" not in os.environ  # what is measured has to start
    made.variables = {"ONDOL_STORE": str(tmp_path / "store")}
    yield made
    made.end()
