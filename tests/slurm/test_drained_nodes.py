"""Administrators drain nodes: before a run, while it runs, and because a step there could not be killed."""

from __future__ import annotations

import os
import signal

import pytest

from handmade import present
from ondol.fleet.record import load
from slurm import test_slurm
from slurm.cluster import Cluster
from slurm.test_slurm import ALL, WAITING, end_of, events, six_wait, start
from suites import Suite

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.fault]


#: Those that begin after `go` wait for each other: each of the four devices that are left gets one of them.
AND_THEN_TOGETHER = (
    WAITING.replace("    if os.fork()", "    late = GO.exists()\n    if os.fork()")
    + """
    if late:
        GO.with_name(f"late-{n}").touch()
    while late and len(list(GO.parent.glob("late-*"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
"""
)


def drain(cluster: Cluster, node: str, reason: str = "maintenance") -> None:
    cluster.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")


def test_a_node_that_is_drained_does_not_lose_what_runs_there(suite: Suite, cluster: Cluster) -> None:
    """Slurm lets a job end on a draining node, and so do we; an agent that dies there is not replaced."""
    suite.write(test_a=AND_THEN_TOGETHER)
    process, journal = start(suite, ALL)
    assert suite.wait_for(lambda: six_wait(suite, journal)), cluster.logs()
    drain(cluster, "n1")
    drain(cluster, "n2", "Kill task failed")
    assert suite.wait_for(lambda: "DRAIN" in cluster.state("n1") and "DRAIN" in cluster.state("n2"))
    os.kill(test_slurm.victim("agent", suite, cluster, process), signal.SIGKILL)
    assert suite.wait_for(lambda: events(journal, "node-out"))
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    record = load(journal)
    assert (result.status, record.counts()) == (0, {"passed": 12}), result.output
    lost = [a for item in record.items for a in item.attempts if a.outcome != "passed"]
    assert [(a.device[:2], a.outcome) for a in lost] == [("n2", "device-lost")] * 2, result.output
    (out,) = events(journal, "node-out")
    assert out["node"] == "n2"
    assert "(Slurm says that n2 is" in str(out["why"])
    assert "DRAIN" in str(out["why"]), "why it is not started again is not said"
    assert {q.device for q in record.quarantines} == {"n2/cuda0", "n2/cuda1"}
    assert any(e["device"] == "n1/cuda0" for e in events(journal, "start")[6:]), (
        "a draining node was given nothing more"
    )
    assert suite.all_gone()


def test_waiting_for_a_node_that_was_drained_before_has_its_reason_said(suite: Suite, cluster: Cluster) -> None:
    suite.write(test_a="def test_1(): pass\n")
    drain(cluster, "n2")
    assert suite.wait_for(lambda: "DRAIN" in cluster.state("n2"))
    all_three = suite.ondol("--engine=slurm", ALL, "--engine-timeout=4", devices="auto")
    assert (all_three.status, all_three.verdicts) == (121, {"test_1": "not-run"}), all_three.output
    assert "PENDING" in all_three.output
    others = suite.ondol("--engine=slurm", "--slurm=--nodes=2 --gpus-per-node=2 --time=5", devices="auto")
    assert (others.status, others.verdicts) == (0, {"test_1": "passed"}), others.output
    assert {event["node"] for event in events(present(others.journal), "node-waits")} == {"n1", "n3"}
    assert suite.wait_for(lambda: not cluster.jobs())
