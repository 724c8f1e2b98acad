"""SIGKILL of the front, the controller, the agent or a worker at any point: the record holds, and nothing lives on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ondol.fleet.record import load
from ondol.host import proctree
from ondol.report import run_junit
from suites import journal_lines

#: Enough for every run of the suite; a longer soak is `ONDOL_KILLS=300 pytest tests/fleet/test_kills.py`.
KILLS = int(os.environ.get("ONDOL_KILLS", "12"))

SUITE = """
import os, pytest, subprocess
@pytest.mark.parametrize("n", range(30))
def test_n(n, tmp_path):
    if n % 10 == 5 and os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "600"])
    sum(range(20000))
"""


def lines_of(journal: Path) -> int:
    try:
        return journal.read_bytes().count(b"\n")
    except OSError:
        return 0


def controller_of(process: subprocess.Popen[str]) -> int:
    front = proctree.command(process.pid)  # its own helpers are forks of it
    found = [p for p in proctree.children(process.pid) if proctree.alive(p) and proctree.command(p) != front]
    return found[0] if found else 0


def workers_in(journal: Path) -> list[int]:
    return [event["pid"] for event in journal_lines(journal) if event["e"] == "worker"]


def victim(kind: str, process: subprocess.Popen[str], journal: Path) -> int:
    controller = controller_of(process)
    if kind == "front":
        return process.pid
    if kind == "controller":
        return controller
    agents = [p for p in proctree.children(controller) if proctree.alive(p)] if controller else []
    if kind == "agent":
        return agents[0] if agents else 0
    workers = [p for a in agents for p in proctree.children(a) if proctree.alive(p)]
    return random.choice(workers) if workers else 0


@pytest.mark.fault
@pytest.mark.parametrize("kind", ["front", "controller", "agent", "worker"])
@pytest.mark.parametrize("number", range((KILLS + 3) // 4))
def test_sigkill_at_a_random_point(suite, kind, number) -> None:
    random.seed(f"{kind} {number}")
    suite.write(test_a=SUITE, test_b=SUITE)
    journal = suite.path / f"journal-{uuid.uuid4().hex}.jsonl"
    process = suite.start([sys.executable, "-m", "ondol", "test", "--devices=cpu:2", f"--journal={journal}"])
    point = random.randint(4, 150)
    suite.wait_for(lambda: lines_of(journal) >= point or process.poll() is not None)
    target = victim(kind, process, journal)
    if target:
        os.kill(target, signal.SIGKILL)
    output, _ = process.communicate(timeout=suite.patience)
    assert suite.all_gone()
    record = load(journal)
    if record.planned:
        assert len(record.items) == 60
        assert sum(record.counts().values()) == 60
        assert all(item.verdict for item in record.items)
    junit = ElementTree.fromstring(run_junit.render(record))
    assert len(junit.findall(".//testcase")) == len(record.items)
    if kind in {"agent", "worker"} and process.returncode == 0:
        assert record.counts() == {"passed": 60}, output[-2000:]
    elif kind in {"agent", "worker"}:
        assert set(record.counts()) <= {"passed", "crashed"}, output[-2000:]


@pytest.mark.fault
def test_a_killed_controller_is_rendered_by_the_front(suite) -> None:
    suite.write(test_a="import signal\ndef test_1(): pass\ndef test_2(): signal.pause()\ndef test_3(): pass\n")
    journal = suite.path / "journal.jsonl"
    process = suite.start([sys.executable, "-m", "ondol", "test", "--devices=cpu:1", f"--journal={journal}"])
    assert suite.wait_for(
        lambda: sum(e["e"] == "start" for e in journal_lines(journal)) == 2 if journal.exists() else False
    )
    os.kill(controller_of(process), signal.SIGKILL)
    output, _ = process.communicate(timeout=suite.patience)
    assert [item.verdict for item in load(journal).items] == ["passed", "crashed", "not-run"]
    assert "pytest itself died" in output
    assert "1 crashed" in output
    assert process.returncode == 1
    assert suite.all_gone()


@pytest.mark.fault
def test_a_killed_pytest_without_a_front_leaves_no_worker_behind(suite) -> None:
    hangs = "import signal\ndef test_hangs(): signal.pause()\n"
    suite.write(test_a=hangs, test_b=hangs)
    journal = suite.path / "journal.jsonl"
    command = [sys.executable, "-m", "pytest", "--ondol-devices=cpu:2", f"--ondol-journal={journal}"]
    process = suite.start(command)
    assert suite.wait_for(
        lambda: sum(e["e"] == "start" for e in journal_lines(journal)) == 2 if journal.exists() else False
    )
    process.kill()
    process.communicate(timeout=suite.patience)
    assert suite.all_gone()


HANGS = """
import signal, pytest
def test_1(): pass
def test_hang():
    try:
        signal.pause()
    finally:
        print("cleaned up")
def test_3(): pass
"""


def running(journal: Path) -> bool:
    return journal.exists() and sum(e["e"] == "start" for e in journal_lines(journal)) == 2


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_stops_reports_and_exits(suite, number) -> None:
    suite.write(test_a=HANGS)
    journal = suite.path / "journal.jsonl"
    command = [sys.executable, "-m", "pytest", "--ondol-devices=cpu:1", f"--ondol-journal={journal}"]
    process = suite.start(command)
    assert suite.wait_for(lambda: running(journal))
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=suite.patience)
    assert process.returncode == 2, output
    record = load(journal)
    assert [item.verdict for item in record.items] == ["passed", "not-run", "not-run"]
    assert record.complete
    assert "1 passed" in output
    assert suite.all_gone()


@pytest.mark.fault
def test_two_interrupts_mean_now(suite) -> None:
    """The item swallows the first one and would take an hour of grace."""
    suite.write(
        test_a="""
        def test_1(): pass
        def test_deaf():
            heard = 0
            while True:
                try:
                    open(f"deaf-{heard}", "w").close()
                    while True: pass
                except KeyboardInterrupt:
                    heard += 1
        """
    )
    journal = suite.path / "journal.jsonl"
    flags = ["--ondol-devices=cpu:1", f"--ondol-journal={journal}", "--ondol-grace=3600"]
    process = suite.start([sys.executable, "-m", "pytest", *flags])
    for heard in range(2):
        assert suite.wait_for((suite.path / f"deaf-{heard}").exists)
        os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=suite.patience)
    assert process.returncode == 2
    assert [item.verdict for item in load(journal).items] == ["passed", "not-run"]
    assert suite.all_gone()


@pytest.mark.fault
@pytest.mark.parametrize("where", ["while it runs", "while it collects"])
def test_ctrl_c_at_the_terminal_reaches_pytest_through_the_front(suite, where) -> None:
    """The terminal signals the whole foreground group: the front must neither die of it nor hide it."""
    hang = "open('hangs', 'w').close()\n    while True: pass\n"
    body = f"def test_1():\n    {hang}" if where == "while it runs" else f"if True:\n    {hang}"
    suite.write(test_a=body)
    command = [sys.executable, "-m", "ondol", "test", "--devices=cpu:1", f"--journal={suite.path / 'j'}"]
    process = suite.start(command, start_new_session=True)
    assert suite.wait_for((suite.path / "hangs").exists)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=suite.patience)
    assert process.returncode == 2, output
    assert "KeyboardInterrupt" in output
    assert suite.all_gone()
