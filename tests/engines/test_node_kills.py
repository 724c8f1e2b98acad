"""SIGKILL of any process of a run on two nodes, at a random point: every item has one verdict, and nothing lives on."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

import pytest

from engines import test_nodes
from ondol.fleet.record import load
from ondol.host import proctree
from suites import Suite

#: Enough for every run of the suite; a longer soak is `ONDOL_KILLS=100 pytest tests/engines/test_node_kills.py`.
KILLS = int(os.environ.get("ONDOL_KILLS", "5"))

SUITE = """
import os, pytest
@pytest.mark.parametrize("n", range(30))
def test_n(n, tmp_path):
    if n % 10 == 5 and os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "600"])
    sum(range(200000))
"""
KINDS = ("controller", "launch", "program", "agent", "worker")


def victim(kind: str, suite: Suite, front: int) -> int:
    controllers = [p for p in proctree.children(front) if proctree.alive(p)]
    if kind == "controller":
        return controllers[0] if controllers else 0
    programs = test_nodes.programs(suite)
    agents = [a for p in programs for a in proctree.children(p) if "pytest" in proctree.describe(a)]
    found = {
        "launch": [p for c in controllers for p in proctree.children(c) if "ondol node" in proctree.describe(p)],
        "program": programs,
        "agent": agents,
        "worker": [w for a in agents for w in proctree.children(a) if "pytest" in proctree.describe(w)],
    }[kind]
    return random.choice(found) if found else 0


@pytest.mark.fault
@pytest.mark.parametrize("number", range(KILLS))
def test_sigkill_at_a_random_point(suite: Suite, number: int) -> None:
    kind = KINDS[number % len(KINDS)]
    random.seed(f"{kind} {number}")
    suite.write(test_a=SUITE, test_b=SUITE)
    # The shell stays: it is the launch command, and the node program its child.
    process, journal = test_nodes.start(suite, "--launch=sh -c '{agent}; exit $?'", "--nodes=2")
    point = random.randint(4, 150)
    suite.wait_for(
        lambda: (journal.exists() and journal.read_bytes().count(b"\n") >= point) or process.poll() is not None
    )
    target = victim(kind, suite, process.pid)
    if target:
        with suppress(ProcessLookupError):  # it was on its way out
            os.kill(target, signal.SIGKILL)
    result = test_nodes.end_of(suite, process, journal)
    left = [proctree.describe(p) for p in suite.survivors()]
    assert suite.all_gone(), (left, result.output[-2000:])
    record = load(journal)
    assert len(record.items) == 60
    assert sum(record.counts().values()) == 60
    if kind != "controller" and result.status == 0:
        assert record.counts() == {"passed": 60}, result.output[-2000:]
    elif kind != "controller":
        assert set(record.counts()) <= {"passed", "crashed"}, result.output[-2000:]
