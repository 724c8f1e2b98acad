"""`ondol test --engine slurm` on a real Slurm with three nodes of two (fake) GPUs each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ondol.fleet.record import load
from ondol.host import proctree
from ondol.host.process import read as read_proc
from ondol.report import run_json, run_junit
from slurm.cluster import Cluster
from suites import Result, Suite, journal_lines

pytestmark = [pytest.mark.real, pytest.mark.root]

ALL = "--slurm=--nodes=3 --gpus-per-node=2 --time=5"

#: Every item waits until so many have begun: they can only end if they run at the same time.
TOGETHER = """
import os, pathlib, time, pytest
HERE = pathlib.Path(__file__).parent / "begun"
@pytest.mark.parametrize("n", range(6))
def test_n(n, device):
    HERE.mkdir(exist_ok=True)
    (HERE / str(n)).touch()
    deadline = time.monotonic() + 60
    while len(list(HERE.iterdir())) < 6:
        assert time.monotonic() < deadline
    assert device.names[0].startswith(os.environ["SLURMD_NODENAME"] + "/cuda")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == device.names[0][-1]
"""

#: Items wait for the file `go`, at most so long; each leaves a process in a session of its own and says when it is there.
WAITING = """
import os, pathlib, time, pytest
GO = pathlib.Path(__file__).parent / "go"
@pytest.mark.parametrize("n", range(12))
def test_n(n):
    if os.fork() == 0:
        os.setsid()
        GO.with_name(f"waiting-{n}").touch()
        os.execvp("sleep", ["sleep", "600"])
    deadline = time.monotonic() + 60
    while not GO.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
"""


def six_wait(suite: Suite, journal: Path) -> bool:
    """Items that have left their process, and of which the controller has heard.

    Slurm kills the processes that it sees: one that is born at that moment lives on where Slurm has no cgroups, until
    the next run there ends it. And an item whose start was still on its way when its node was lost is simply run again.
    """
    heard = sum(event["e"] == "start" for event in journal_lines(journal)) if journal.exists() else 0
    return heard >= 6 and len(list(suite.path.glob("waiting-*"))) >= 6


def end_of(suite: Suite, process: subprocess.Popen[str], journal: Path) -> Result:
    output, _ = process.communicate(timeout=suite.patience)
    return Result(process.returncode, output, journal=journal)


def start(suite: Suite, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    journal = suite.path / "journal.jsonl"
    command = [sys.executable, "-m", "ondol", "test", "--engine=slurm", f"--journal={journal}", "--native-stacks=0"]
    return suite.start([*command, *arguments]), journal


def events(journal: Path, kind: str) -> list[dict[str, object]]:
    return [event for event in journal_lines(journal) if event["e"] == kind]


def test_items_run_on_all_devices_of_all_nodes_and_every_row_says_where(suite: Suite, cluster: Cluster) -> None:
    suite.write(
        test_a=TOGETHER,
        test_b="""
        import pytest
        @pytest.mark.ondol(devices=2)
        def test_gang(device):
            assert len({name.split("/")[0] for name in device.names}) == 1
            assert len(device.names) == 2
        @pytest.mark.ondol(devices=3)
        def test_too_large(): pass
        """,
    )
    result = suite.ondol("--engine=slurm", ALL, f"--junitxml={suite.path / 'junit.xml'}", devices="auto")
    assert result.verdicts == {f"test_n[{n}]": "passed" for n in range(6)} | {
        "test_gang": "passed",
        "test_too_large": "error",
    }, result.output
    used = {item.attempts[-1].device for item in result.record.items if "test_n" in item.nodeid}
    assert used == {f"n{node}/cuda{gpu}" for node in (1, 2, 3) for gpu in (0, 1)}
    assert "needs 3 devices, there are 2 in one node" in result.output
    junit = ElementTree.fromstring(run_junit.render(result.record))
    shown = {p.get("value") for p in junit.iterfind(".//testcase/properties/property[@name='device']")}
    assert used <= shown
    document = json.loads(run_json.render(result.record))
    assert {node["node"] for node in document["nodes"]} == {"n1", "n2", "n3"}
    assert len(ElementTree.parse(suite.path / "junit.xml").findall(".//testcase")) == 8
    # Slurm lists a job until every node has told that nothing of it is left.
    assert suite.wait_for(lambda: not cluster.jobs()), "the allocation was not given back"
    assert suite.all_gone()


def victim(kind: str, suite: Suite, cluster: Cluster, process: subprocess.Popen[str]) -> int:
    """The process to be killed, of node n2 where there is one per node."""
    (controller,) = proctree.children(process.pid)
    if kind == "controller":
        return controller
    if kind == "slurmd":
        return cluster.slurmd("n2")
    if kind == "srun":
        return next(p for p in proctree.descendants(controller) if "--nodelist=n2" in proctree.describe(p))
    # Some of them are short-lived, and over before we look.
    mine = [p for p in suite.survivors() if "SLURMD_NODENAME=n2" in read_proc(f"/proc/{p}/environ")]
    program = next(p for p in mine if "ondol node" in proctree.describe(p))
    (agent,) = [p for p in proctree.children(program) if "pytest" in proctree.describe(p)]
    return {"program": program, "agent": agent, "worker": proctree.children(agent)[0]}[kind]


@pytest.mark.fault
@pytest.mark.parametrize("kind", ["worker", "agent", "program", "srun", "slurmd", "controller"])
def test_whichever_process_is_killed_every_item_gets_a_verdict(suite: Suite, cluster: Cluster, kind: str) -> None:
    suite.write(test_a=WAITING)
    process, journal = start(suite, ALL)
    assert suite.wait_for(lambda: six_wait(suite, journal)), cluster.logs()
    os.kill(victim(kind, suite, cluster, process), signal.SIGKILL)
    if kind in {"agent", "program", "srun"}:
        assert suite.wait_for(lambda: events(journal, "node-lost"))
        assert events(journal, "node-lost")[0]["node"] == "n2"
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    record = load(journal)
    assert len(record.items) == 12
    if kind == "controller":
        assert "pytest itself died" in result.output
        assert sum(record.counts().values()) == 12
    else:
        assert record.counts() == {"passed": 12}, result.output
        assert result.status == 0
    if kind in {"agent", "program", "srun"}:
        assert [item.flaky for item in record.items].count(True) == 2, "both items of n2 were tried again"
    if kind == "slurmd":
        cluster.restore()  # the step's processes are its to end
    assert suite.all_gone()
    assert suite.wait_for(lambda: not cluster.jobs())


@pytest.mark.fault
def test_a_cancelled_job_leaves_no_item_without_a_verdict(suite: Suite, cluster: Cluster) -> None:
    suite.write(test_a=WAITING)
    process, journal = start(suite, ALL)
    assert suite.wait_for(lambda: six_wait(suite, journal)), cluster.logs()
    cluster.run("scancel", *cluster.jobs())
    result = end_of(suite, process, journal)
    assert result.status == 121, result.output
    counts = load(journal).counts()
    assert counts == {"device-lost": 6, "not-run": 6}, result.output
    assert "no node is left" in result.output
    assert suite.all_gone()


@pytest.mark.fault
def test_a_node_that_goes_down_does_not_take_its_items_with_it(suite: Suite, cluster: Cluster) -> None:
    suite.write(test_a=WAITING)
    process, journal = start(suite, ALL)
    assert suite.wait_for(lambda: six_wait(suite, journal)), cluster.logs()
    cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    assert suite.wait_for(lambda: events(journal, "node-out")), cluster.logs()
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert load(journal).counts() == {"passed": 12}, result.output
    assert "node n2 is left out: Slurm says that n2 is DOWN" in result.output
    assert {q.device for q in load(journal).quarantines} == {"n2/cuda0", "n2/cuda1"}
    cluster.restore()
    assert suite.all_gone()


@pytest.mark.fault
def test_a_preempted_job_tells_about_its_items(suite: Suite, cluster: Cluster) -> None:
    suite.write(test_a=WAITING)
    process, journal = start(suite, ALL)
    assert suite.wait_for(lambda: six_wait(suite, journal)), cluster.logs()
    urgent = suite.start(["srun", "--partition=urgent", "--nodes=3", "--exclusive", "true"])
    result = end_of(suite, process, journal)
    assert {event["node"] for event in events(journal, "node-notice")} == {"n1", "n2", "n3"}, result.output
    assert all("Slurm preempts job" in str(event["why"]) for event in events(journal, "node-notice")), result.output
    assert load(journal).counts() == {"device-lost": 6, "not-run": 6}, result.output
    assert result.status == 121
    assert {event["node"] for event in events(journal, "room")} == {"n1", "n2", "n3"}, "a notice is time to publish"
    assert urgent.wait(timeout=60) == 0
    assert suite.all_gone()


def test_no_item_is_started_when_the_time_limit_is_near(suite: Suite) -> None:
    suite.write(test_a=WAITING)
    result = suite.ondol("--engine=slurm", ALL, "--engine-margin=3600", devices="auto")
    assert result.status == 121
    assert result.record.counts() == {"not-run": 12}
    assert "the allocation's time limit is near" in result.output


def test_a_node_that_collects_something_else_is_not_used(suite: Suite, cluster: Cluster) -> None:
    """Inside an allocation that somebody else made, with nothing of it but two variables."""
    suite.write(
        test_a="""
        import os, pytest
        @pytest.mark.parametrize("n", ["a", "x" if os.environ.get("SLURMD_NODENAME") == "n3" else "b", "c"])
        def test_n(n): pass
        """,
        test_b="""
        import os
        if os.environ.get("SLURMD_NODENAME") == "n2":
            raise ImportError("no libcudart on this node")
        import pathlib, time
        def test_m():
            deadline = time.monotonic() + 60
            while not (pathlib.Path(__file__).parent / "go").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        """,
    )
    cluster.run("salloc", "--no-shell", "--nodes=3", "--gpus-per-node=2", check=False)
    (job,) = cluster.jobs()
    suite.variables |= {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n[1-3]"}
    process, journal = start(suite)
    assert suite.wait_for(lambda: len(events(journal, "node-out")) == 2 if journal.exists() else False)
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert result.record.counts() == {"passed": 4}, result.output
    assert {item.attempts[-1].device[:2] for item in result.record.items} == {"n1"}
    assert (
        "node n3 is left out: it collected 4 items, the controller 4; the first difference is item 2: "
        "test_a.py::test_n[x] there, test_a.py::test_n[b] here" in result.output
    )
    assert "node n2 is left out: collection failed there: test_b.py: ImportError: no libcudart" in result.output
    assert cluster.jobs() == [job], "an allocation that was not ours was given back"


@pytest.mark.fault
def test_a_job_that_never_starts_is_not_waited_for_for_ever(suite: Suite, cluster: Cluster) -> None:
    suite.write(test_a="def test_1(): pass\n")
    cluster.run("salloc", "--no-shell", "--nodes=3", "--exclusive", check=False)
    (other,) = cluster.jobs()
    result = suite.ondol("--engine=slurm", ALL, "--engine-timeout=3", devices="auto")
    assert result.status == 121, result.output
    assert result.verdicts == {"test_1": "not-run"}
    assert "PENDING: Resources" in result.output
    assert suite.wait_for(lambda: cluster.jobs() == [other]), "our job is still queued"


def test_what_slurm_refuses_is_named(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    result = suite.ondol("--engine=slurm", "--slurm=--partition=nowhere", devices="auto")
    assert result.status == 121
    assert "Invalid partition name" in result.output
    result = suite.ondol("--engine=slurm", devices="auto")
    assert result.status == 4
    assert "this is not inside an allocation" in result.output
