"""The order in which an agent says and does things, where another order would lose something."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ondol.fleet import wire
from ondol.fleet.agent import agent as agents
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.keeper import HostSlot
from ondol.fleet.messages import Message, RunItem, Started
from ondol.fleet.starts import Limits, Rules

TOKEN = b"t" * 16


@pytest.fixture
def controller() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        yield SimpleNamespace(channel=wire.Channel(ours, TOKEN), agents=wire.Channel(theirs, TOKEN))


def idle_worker(on_run: Callable[[], None]) -> Any:
    place = SimpleNamespace(name="cpu0-1", slot="cpu0")
    return SimpleNamespace(state="idle", ran=0, runtime="", place=place, run=lambda message, now: on_run())


def test_an_item_that_kills_the_agent_at_once_has_never_run(controller, tmp_path) -> None:
    agent = Agent(controller.agents, None, Limits(), Rules(str(tmp_path)))  # type: ignore[arg-type]
    here = agent.slots["cpu0"] = HostSlot("cpu0", {}, [])
    heard: list[Message] = []
    here.worker = idle_worker(lambda: heard.extend(controller.channel.receive_all()[0]))
    here.worker.here = here
    here.queue.append(RunItem("cpu0", 7, 1, 7, "t.py::a"))
    agent._pump(here)
    assert heard == [Started("cpu0", "cpu0-1", 7, 1, False)], "known when the item begins"


@pytest.mark.parametrize("first", ["the worker", "the agent"])
def test_a_worker_that_died_of_its_nodes_notice_has_not_crashed(controller, tmp_path, monkeypatch, first) -> None:
    """Slurm sends SIGTERM to one process after the other: the worker may be dead before the agent hears of it."""
    agent = Agent(controller.agents, None, Limits(), Rules(str(tmp_path), term_is_notice=True))  # type: ignore[arg-type]
    before = signal.signal(signal.SIGTERM, agent._on_term)

    def notice(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        if first == "the agent":
            notice()
        # Its clock stands still; the notice comes while it waits for one.
        monkeypatch.setattr(agents, "time", SimpleNamespace(monotonic=lambda: 100.0))
        monkeypatch.setattr(agents, "select", SimpleNamespace(select=notice))
        worker: Any = SimpleNamespace(ladder=None)
        assert agent._kind_of_death(worker, signal.SIGTERM) == "device-lost"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_worker_that_died_of_a_signal_where_that_is_no_notice_has_crashed(controller, tmp_path) -> None:
    agent = Agent(controller.agents, None, Limits(), Rules(str(tmp_path)))  # type: ignore[arg-type]
    worker: Any = SimpleNamespace(ladder=None)
    assert agent._kind_of_death(worker, signal.SIGTERM) == "crashed"
