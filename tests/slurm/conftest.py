"""One cluster for all tests of this folder, as good as new for each of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.cluster import Cluster, why_not
from suites import Suite


@pytest.fixture(scope="session")
def whole_cluster() -> Iterator[Cluster]:
    if why_not():
        pytest.skip(why_not())
    base = Path(tempfile.mkdtemp(prefix="ondol-slurm-"))
    made = Cluster(base)
    yield made
    made.close()
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def cluster(whole_cluster: Cluster) -> Iterator[Cluster]:
    whole_cluster.restore()
    yield whole_cluster
    whole_cluster.restore()


@pytest.fixture
def suite(tmp_path: Path, cluster: Cluster) -> Iterator[Suite]:
    made = Suite(tmp_path)
    made.variables = {**cluster.environment, "ONDOL_STORE": str(tmp_path / "store")}
    yield made
    made.end()
