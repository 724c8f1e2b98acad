"""The order in which an agent says and does things, where another order would lose something."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ondol.fleet import wire
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
