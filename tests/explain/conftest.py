"""The nightly of seed 000, run once for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain import suite


@pytest.fixture(scope="session")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nightly")
    suite.write(folder)
    return folder


@pytest.fixture(scope="session")
def log(nightly: Path) -> str:
    return suite.run(nightly)
