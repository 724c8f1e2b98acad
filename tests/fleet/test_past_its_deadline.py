"""An item that comes back after its deadline: it has timed out, whatever it says then, and its neighbour pays nothing.

Asking for stacks and SIGTERM wake many calls that would have slept on, so the worker reports a pass just as it is being
ended. What counts is the agent's clock, and what is ended is the attempt whose deadline it was.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handmade import present
from ondol.fleet import messages, wire
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.launch import Started
from ondol.fleet.board import Board
from ondol.fleet.messages import Done, Ended, Hello, Message, RunItem
from ondol.fleet.starts import Limits, Place, Rules

pytestmark = pytest.mark.warm_pytest

#: Each comes back as if nothing had been, once a signal arrives.
WAKES = {
    "c_sleep": "C.sleep(600)",
    "c_pause": "C.pause()",
    "c_poll": "C.poll(None, 0, -1)",
    "sigwait": "signal.sigwait({signal.SIGTERM})",
    "term_handler": """
        seen = []
        signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
        while not seen: C.usleep(50_000)
    """,
    "asyncio_handler": """
        import asyncio
        async def main():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            await stop.wait()
        asyncio.run(main())
    """,
}
PRELUDE = "import ctypes, signal, pytest\nC = ctypes.CDLL(None)\n"
FLAGS = ("--ondol-grace=20", "--ondol-native-stacks=0", "--ondol-retries=0")


def items(*names: str, limit: float = 0) -> str:
    """Every one of them with a neighbour that does nothing wrong, and has all the time that it needs."""
    return PRELUDE + "".join(
        f"@pytest.mark.ondol(timeout={limit})\ndef test_{name}():\n    if True:\n        {WAKES[name].strip()}\ndef test_after_{name}(): pass\n"
        for name in names
    )


def expected(*names: str) -> dict[str, str]:
    return {f"test_{a}{name}": v for name in names for a, v in (("", "timeout"), ("after_", "passed"))}


@pytest.mark.fault
@pytest.mark.parametrize("isolate", ["worker", "item"])
def test_what_a_signal_wakes_has_still_timed_out(suite, isolate: str) -> None:
    suite.write(test_m=items(*WAKES, limit=1.5))
    result = suite.pytest(*FLAGS, f"--ondol-isolate={isolate}", devices="cpu:1")
    assert result.verdicts == expected(*WAKES)
    assert result.status == 1


@pytest.mark.fault
def test_the_last_item_of_a_run_too(suite) -> None:
    suite.write(test_m=PRELUDE + "def test_a(): pass\n@pytest.mark.ondol(timeout=1)\ndef test_b(): C.sleep(600)\n")
    result = suite.pytest(*FLAGS)
    assert (result.verdicts, result.status) == ({"test_a": "passed", "test_b": "timeout"}, 1)


@pytest.mark.fault
def test_a_silent_item_is_ended_as_one_past_its_deadline_is(suite) -> None:
    suite.write(test_m=items("c_sleep", "term_handler"))
    result = suite.pytest(*FLAGS, "--ondol-silence=5", devices="cpu:1")
    assert result.verdicts == expected("c_sleep", "term_handler")


@pytest.mark.fault
def test_a_teardown_past_its_deadline_is_ended(suite) -> None:
    fixture = "@pytest.fixture\ndef slow():\n    yield\n    C.sleep(600)\n"
    suite.write(test_m=PRELUDE + fixture + "def test_a(slow): pass\ndef test_b(): pass\n")
    result = suite.pytest(*FLAGS, "--ondol-teardown-timeout=5", devices="cpu:1")
    assert result.verdicts == {"test_a": "timeout", "test_b": "passed"}


@pytest.mark.fault
def test_the_deadline_of_the_run_too(suite) -> None:
    suite.write(test_m=items("term_handler"))
    result = suite.pytest(*FLAGS, "--ondol-session-timeout=10", devices="cpu:1")
    assert result.verdicts == {"test_term_handler": "timeout", "test_after_term_handler": "not-run"}
    assert result.status == 124


@pytest.mark.plugins("timeout")
@pytest.mark.fault
@pytest.mark.parametrize("mark", ["method='thread'", "None"])
def test_a_mark_that_names_no_time_leaves_our_deadline_as_it_is(suite, mark: str) -> None:
    suite.write(
        test_m=f"import pytest, threading\n@pytest.mark.timeout({mark})\ndef test_a(): threading.Event().wait()\n"
    )
    result = suite.pytest(*FLAGS[1:], "--ondol-grace=0.2", "--ondol-timeout=1", "-p", "no:timeout")
    assert result.verdicts == {"test_a": "timeout"}


# ---------------------------------------------------------------------- the order of things, without any clock but ours


class Bench:
    """An agent with one slot, a process that only waits to be killed in the place of its worker, and a clock."""

    def __init__(self, tmp_path: Path, limits: Limits) -> None:
        self.now = 100.0
        control, ours = wire.pair()
        self.heard = wire.Channel(ours, b"x" * 16)
        rules = Rules(str(tmp_path))
        self.agent = Agent(wire.Channel(control, b"x" * 16), self, limits, rules, lambda: self.now)
        self.agent._end_orphans = lambda: None  # type: ignore[method-assign]  # they would be this pytest's
        self.workers: list[wire.Channel] = []
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, place: Place, inherited: object) -> Started:
        ours, theirs = wire.pair()
        self.worker = wire.Channel(theirs, b"w" * 16)
        self.workers.append(self.worker)
        process = subprocess.Popen(["sh", "-c", "trap '' TERM; cat"], stdin=subprocess.PIPE)
        self.started.append(process)
        socket.send_fds(theirs, [b"F"], [])
        dump = os.memfd_create("dump")
        self.board, self.lane = Board(), wire.AheadPipe.open(b"w" * 16)
        return Started(process.pid, wire.Channel(ours, b"w" * 16), dump, self.board, self.lane)

    def says(self, *said: messages.FromWorker) -> None:
        for message in said:
            self.worker.send(message)
        self.agent._turn()

    def told(self) -> list[Message]:
        return self.heard.receive_all()[0]

    def until_dead(self) -> list[Message]:
        """The worker comes to its end, and what the agent says meanwhile."""
        found = self.told()
        for _ in range(400):
            if any(isinstance(message, messages.WorkerEnded) for message in found):
                return found
            self.now += 0.05
            self.agent._patience = lambda now: 0.02  # type: ignore[method-assign]  # its death takes real time
            self.agent._turn()
            found += self.told()
        raise AssertionError(f"it was never ended: {found}")

    def close(self) -> None:
        for process in self.started:
            process.kill()
            present(process.stdin).close()
            process.wait()
        for keeper in self.agent._keepers():
            keeper.close()
        for channel in (*self.workers, self.heard, self.agent.control):
            channel.close()
        self.agent._selector.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Limits], Bench]]:
    made: list[Bench] = []

    def make(limits: Limits) -> Bench:
        made.append(Bench(tmp_path, limits))
        return made[-1]

    yield make
    for one in made:
        one.close()


CALLED = b'{"when":"call","outcome":"passed"}'
LATE = {
    "the item": (Limits(native_dump=0), 3.0, "call"),
    "silence": (Limits(silence=2.0, native_dump=0), 0.0, "call"),
    "its teardown": (Limits(teardown=2.0, native_dump=0), 60.0, "teardown"),
}


@pytest.mark.parametrize("what", LATE)
def test_a_pass_that_is_said_after_the_deadline_is_not_heard(bench, what: str) -> None:
    """Both are there when the agent looks: the deadline first."""
    limits, timeout, phase = LATE[what]
    it: Bench = bench(limits)
    for item in (1, 2):
        it.agent._obey(RunItem("cpu0", item, 1, item, f"t.py::{item}", timeout=timeout))
    it.says(Hello())
    it.board.enter(phase, it.now)
    it.now += 3.03
    it.says(Done(1, 1, 1, block=messages.as_block([CALLED])))
    found = it.until_dead()
    ended = [message for message in found if isinstance(message, Ended)]
    assert [(e.item, e.attempt, e.how) for e in ended] == [(1, 1, "timeout")]
    begun = [message.item for message in found if isinstance(message, messages.Started)]
    assert begun == [1], "the next one was begun in a process that is being ended"
    assert CALLED not in ended[0].block


def test_an_item_that_ended_in_time_has_passed_however_late_that_is_read(bench) -> None:
    """Whether the agent was woken by what it said, or by the deadline."""
    for wakes in ("its words", "the clock"):
        it: Bench = bench(Limits(native_dump=0))
        it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1", timeout=3.0))
        it.says(Hello())
        it.now += 30.0
        if wakes == "the clock":
            it.agent._selector.select = lambda timeout=None: []  # type: ignore[method-assign]
        it.says(Done(1, 1, 1, at=102.9, block=messages.as_block([CALLED])))
        assert [(e.item, e.how) for e in it.told() if isinstance(e, Ended)] == [(1, "done")], wakes


def test_an_item_that_ended_late_has_timed_out(bench) -> None:
    it: Bench = bench(Limits(native_dump=0))
    it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1", timeout=3.0))
    it.says(Hello())
    it.now += 30.0
    it.says(Done(1, 1, 1, at=103.1))
    assert [e.how for e in it.until_dead() if isinstance(e, Ended)] == ["timeout"]


@pytest.mark.parametrize("what", LATE)
def test_the_time_in_which_the_agent_stood_still_counts_for_nobody(bench, what: str) -> None:
    """`docker pause` stops its workers too: nothing has ended, and nothing is late."""
    limits, timeout, phase = LATE[what]
    it: Bench = bench(limits)
    it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1", timeout=timeout))
    it.says(Hello())
    it.board.enter(phase, it.now)
    it.now += 0.5
    select, it.agent._patience = it.agent._selector.select, lambda now: 0.0  # type: ignore[method-assign]

    def stopped(timeout: float | None = None) -> list[Any]:
        it.now += 1000.0
        return select(timeout)

    it.agent._selector.select = stopped  # type: ignore[method-assign]
    it.agent._turn()
    it.agent._selector.select = select  # type: ignore[method-assign]
    it.agent._turn()
    assert present(it.agent.slots["cpu0"].worker).ladder is None
    it.now += 3.03
    it.agent._turn()
    assert [e.how for e in it.until_dead() if isinstance(e, Ended)] == ["timeout"]


def test_a_worker_that_starts_too_late_gets_nothing_to_run(bench) -> None:
    it: Bench = bench(Limits(startup=10.0, native_dump=0))
    it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1"))
    it.now += 10.5
    it.says(Hello())
    found = it.until_dead()
    assert not [message for message in found if isinstance(message, messages.Started | Ended)]
    assert [message.slot for message in found if isinstance(message, messages.StartFailed)] == ["cpu0"]


def test_a_worker_that_leaves_well_but_too_late_spoils_its_last_item(bench) -> None:
    """A finaliser that hung and was woken by our signals: its process ends with status 0."""
    it: Bench = bench(Limits(teardown=5.0, native_dump=0, grace=1000.0))
    it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1"))
    it.says(Hello())
    it.says(Done(1, 1, 1))
    it.agent._obey(messages.Finish())
    it.now += 5.5
    it.agent._turn()
    present(it.started[0].stdin).close()
    (ended,) = [message for message in it.until_dead() if isinstance(message, messages.WorkerEnded)]
    assert (ended.abnormal, ended.late, ended.blamed) == (True, "finaliser", 1)
    assert "did not leave within 5 s" in ended.why


def test_what_is_said_about_another_attempt_ends_nothing(bench) -> None:
    """A fork of the worker that came back late, or a test that found our channel."""
    it: Bench = bench(Limits())
    it.agent._obey(RunItem("cpu0", 1, 2, 1, "t.py::1"))
    it.says(Hello())
    it.says(Done(1, 1, 1), Done(7, 2, 1))
    assert not [message for message in it.told() if isinstance(message, Ended)]
    it.says(Done(1, 2, 1))
    (ended,) = [message for message in it.told() if isinstance(message, Ended)]
    assert (ended.item, ended.attempt, ended.how) == (1, 2, "done")


def test_a_worker_whose_death_and_last_words_come_together_harms_nobody(bench) -> None:
    """The agent sees its end first, and closes what it shared with it; the words are still on the list of that turn."""
    it: Bench = bench(Limits(native_dump=0))
    it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1"))
    it.says(Hello())
    keeper = present(it.agent.slots["cpu0"].worker)
    it.worker.send(Done(1, 1, 1))
    it.started[0].kill()
    os.waitid(os.P_PIDFD, keeper.pidfd, os.WEXITED | os.WNOWAIT)
    it.agent._on_death(keeper)
    it.agent._on_worker(keeper)
    it.agent._flush()
    (ended,) = [message for message in it.told() if isinstance(message, Ended)]
    assert (ended.item, ended.how) == (1, "done")


def test_what_an_earlier_item_left_on_the_board_costs_the_next_one_nothing(bench) -> None:
    it: Bench = bench(Limits(teardown=2.0, native_dump=0))
    it.agent._obey(RunItem("cpu0", 1, 1, 1, "t.py::1"))
    it.says(Hello())
    it.board.enter("teardown", it.now - 60)
    it.says(Done(1, 1, 1))
    (ended,) = [message for message in it.told() if isinstance(message, Ended)]
    assert ended.how == "done"
