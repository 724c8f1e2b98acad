"""Nodes of a real Slurm are asked for when the session begins, and collect beside the controller; what becomes of the
allocation when there is no run.
"""

from __future__ import annotations

import signal
import subprocess

import pytest

from slurm.cluster import Cluster
from slurm.test_slurm import ALL, end_of, start
from suites import Suite

pytestmark = [pytest.mark.real, pytest.mark.root]

#: Each process says that it has imported it; nobody waits for ever.
CONFTEST = """
import os, pathlib, select, time
HERE = pathlib.Path(__file__).parent
WHERE = os.environ.get("SLURMD_NODENAME", "")
def wait_for(*names):
    deadline = time.monotonic() + 100
    while not all((HERE / name).exists() for name in names):
        assert time.monotonic() < deadline, f"nobody ever said {names}"
        select.select([], [], [], 0.01)
(HERE / f"imported-{WHERE}").touch()
"""


def test_nodes_are_asked_for_before_the_controller_has_collected(suite: Suite, cluster: Cluster) -> None:
    """It waits in its conftest for the conftests of all three."""
    waits = "WHERE or wait_for(*(f'imported-n{number}' for number in (1, 2, 3)))\n"
    suite.write(conftest=CONFTEST + waits, test_a="def test_1(): pass\n")
    result = suite.ondol("--engine=slurm", ALL, devices="auto")
    assert result.verdicts == {"test_1": "passed"}, result.output
    assert suite.wait_for(lambda: not cluster.jobs())


@pytest.mark.fault
def test_nodes_of_a_run_that_never_was_give_their_allocation_back(suite: Suite, cluster: Cluster) -> None:
    suite.write(conftest=CONFTEST, test_a="import conftest\nconftest.WHERE or conftest.wait_for('imported-n2', 'go')\n")
    process, journal = start(suite, ALL, "-k", "nothing")
    assert suite.wait_for((suite.path / "imported-n2").exists)
    assert cluster.jobs()
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert result.status == 5, result.output
    assert suite.wait_for(lambda: not cluster.jobs())
    assert suite.all_gone()


@pytest.mark.fault
@pytest.mark.parametrize("how", ["collection fails", "SIGTERM", "SIGKILL"])
def test_a_run_that_never_was_leaves_the_queue(suite: Suite, cluster: Cluster, how: str) -> None:
    """Somebody else has all nodes while it collects. Killed is `ondol test`: pytest outlives it for a moment."""
    cluster.run("salloc", "--no-shell", "--nodes=3", "--exclusive", check=False)
    (other,) = cluster.jobs()
    suite.write(conftest=CONFTEST, test_a="import conftest\nconftest.wait_for('go')\nimport nothing_like_this\n")
    process, journal = start(suite, ALL)
    assert suite.wait_for(lambda: len(cluster.jobs()) == 2)
    assert suite.wait_for(journal.exists)
    end(process, suite, how)
    result = end_of(suite, process, journal)
    assert result.status == {"collection fails": 2, "SIGTERM": 2, "SIGKILL": -signal.SIGKILL}[how], result.output
    assert suite.wait_for(lambda: cluster.jobs() == [other]), cluster.run("squeue")
    assert suite.all_gone()


def end(process: subprocess.Popen[str], suite: Suite, how: str) -> None:
    if how == "collection fails":
        (suite.path / "go").touch()
    else:
        process.send_signal(signal.Signals[how])
