"""SIGSTOP of the agent, which a test can send to its parent: found by its silence, ended, replaced; nothing lives on."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ondol.fleet.record import load
from suites import journal_lines

STOPS = """
import os, signal
def test_1(): pass
def test_stops():
    mark = os.environ["LOG"] + ".stopped"
    if not os.path.exists(mark):
        with open(mark, "w") as file: file.write(str(os.getppid()))
        os.kill(os.getppid(), signal.SIGSTOP)
        signal.pause()
def test_3(): pass
"""


@pytest.mark.fault
def test_a_stopped_agent_is_replaced_and_the_run_goes_on(suite) -> None:
    suite.write(test_a=STOPS)
    result = suite.pytest("--ondol-engine-silence=4", devices="cpu:1")
    assert result.verdicts == {"test_1": "passed", "test_stops": "passed", "test_3": "passed"}
    (died,) = [event for event in journal_lines(result.journal) if event["e"] == "agent-died"]
    assert "did not answer" in died["why"]
    assert suite.all_gone()


LIMIT = 10.0
STOPS_AND_ENDS = f"""
import os, pytest, signal, time
@pytest.mark.ondol(timeout={LIMIT})
def test_stops():
    with open(os.environ["LOG"] + ".stopped", "w") as file: file.write(str(os.getppid()))
    os.kill(os.getppid(), signal.SIGSTOP)
def test_after(): pass
"""


@pytest.mark.fault
def test_an_item_that_ended_in_time_has_passed_though_its_agent_stood_still(suite) -> None:
    """Ctrl-Z, `docker pause`: the agent hears of its end when the deadline is long past."""
    suite.write(test_a=STOPS_AND_ENDS)
    mark, journal = Path(f"{suite.log}.stopped"), suite.path / "journal.jsonl"
    words = ["-m", "ondol", "test", "--devices=cpu:1", f"--journal={journal}", "--engine-silence=600s", "--retries=0"]
    process = suite.start([sys.executable, *words])
    assert suite.wait_for(lambda: is_stopped(mark))
    past = time.monotonic() + LIMIT
    assert suite.wait_for(lambda: time.monotonic() > past)
    os.kill(int(mark.read_text()), signal.SIGCONT)
    output, _ = process.communicate(timeout=suite.patience)
    assert (process.returncode, load(journal).counts()) == (0, {"passed": 2}), output
    assert suite.all_gone()


def is_stopped(mark: Path) -> bool:
    """The agent that the item has named there; it names it a moment before it stops it."""
    try:
        return Path(f"/proc/{int(mark.read_text())}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, ValueError):
        return False


@pytest.mark.fault
@pytest.mark.parametrize("killed", [signal.SIGKILL, signal.SIGTERM])
def test_the_front_goes_and_takes_a_stopped_agent_with_it(suite, killed: int) -> None:
    """Nobody waits for the silence of a whole run once it is to end."""
    suite.write(test_a=STOPS)
    journal = suite.path / "journal.jsonl"
    process = suite.start([sys.executable, "-m", "ondol", "test", "--devices=cpu:1", f"--journal={journal}"])
    assert suite.wait_for(lambda: is_stopped(Path(f"{suite.log}.stopped")))
    os.kill(process.pid, killed)
    process.communicate(timeout=suite.patience)
    assert suite.all_gone()
