"""A device is set aside while something waits there for a fresh process: it goes elsewhere, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.fleet import schedule, wire
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.keeper import HostSlot
from ondol.fleet.messages import Lose, Message, Revoked, RunItem
from ondol.fleet.model import Device, HandOut, Slot, Work
from ondol.fleet.starts import Limits, Rules

WAITS = RunItem("sim0", 7, 2, 7, "t.py::a", fresh=True)


class NoWorkers:
    """Nothing is started in these tests."""

    def start(self, *_: object) -> None:
        raise AssertionError("a worker was started on a device that is set aside")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    ours, theirs = wire.pair()
    channel = wire.Channel(theirs, b"0" * 16)
    made = Agent(channel, NoWorkers(), Limits(), Rules(str(tmp_path)))  # type: ignore[arg-type]
    yield made
    made._selector.close()
    ours.close()
    channel.close()


def told(agent: Agent) -> list[Message]:
    return list(wire.Decoder(b"0" * 16).feed(bytes(agent._outbox)))


def test_what_waits_for_a_fresh_process_on_a_device_that_is_set_aside_is_not_forgotten(agent: Agent) -> None:
    """The run waited for its verdict for ever."""
    # As after a worker that was asked to leave: the next one is not there yet.
    here = agent.slots["sim0"] = HostSlot("sim0", {}, [], held=True)
    agent._obey(WAITS)
    agent._obey(Lose("sim0", "3 different items went badly here"))
    assert told(agent) == [Revoked("sim0", [7])]
    assert (here.lost, list(here.queue)) == (True, [])


def test_what_was_given_up_and_given_back_runs_once() -> None:
    """No worker could start there: the controller gave the item up before the agent gave it back."""
    scheduler = schedule.build(
        [Work(0, "a"), Work(1, "b")], [Slot("sim0", "sim0"), Slot("sim1", "sim1")], [Device("sim0"), Device("sim1")]
    )
    handed = {action.slot: action.work for action in scheduler.step() if isinstance(action, HandOut)}
    scheduler.device_lost("sim0")
    scheduler.ended("sim0", handed["sim0"])
    scheduler.repeat(handed["sim0"], frozenset({"sim0"}))
    scheduler.revoked("sim0", [handed["sim0"]])
    assert scheduler.waiting_works() == [handed["sim0"]]
