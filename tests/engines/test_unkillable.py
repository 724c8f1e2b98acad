"""A launch command that not even SIGKILL ends, because a process of the step hangs in the kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ondol.engines import links
from ondol.engines.api import Gone
from ondol.engines.launch import Launch
from ondol.engines.links import Links, Terms
from ondol.fleet import messages
from ondol.fleet.messages import Event


class Unkillable(Launch):
    """A real `cat` that, as far as anybody can see, never ends."""

    kills = 0

    def kill(self) -> None:
        super().kill()
        Unkillable.kills += 1

    def ended(self) -> bool:
        return False


@dataclass
class Engine:
    """One node."""

    name: str = "stand-in"
    closed: list[bool] = field(default_factory=list)

    def open(self) -> None: ...

    def nodes(self) -> list[str]:
        return ["n1"]

    def pending(self) -> str:
        return ""

    def refused(self) -> str:
        return ""

    def command(self, _node: str) -> list[str]:
        return ["cat"]

    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"}

    def arguments(self, _node: str) -> list[str]:
        return []

    def why_waiting(self, _node: str) -> str:
        return ""

    def why_gone(self, _node: str) -> Gone:
        return Gone()

    def seconds_left(self) -> float | None:
        return None

    def close(self) -> None:
        self.closed.append(True)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def turns(made: Links, clock: Clock, seconds: float) -> list[Event]:
    """What is heard while so much time passes, looked at once a second."""
    heard: list[Event] = []
    for _ in range(int(seconds)):
        clock.now += 1.0
        heard += made.receive(0.0)
    return heard


def until_out(made: Links, clock: Clock) -> list[Event]:
    """As many turns as it takes: the process behind the node is a real one, and may be slower than this clock."""
    heard: list[Event] = []
    while not [event for event in heard if isinstance(event, messages.NodeOut)] and clock.now < 2000.0:
        clock.now += 1.0
        heard += made.receive(0.02)
    return heard


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> tuple[Links, Clock]:
    monkeypatch.setattr(links, "Launch", Unkillable)
    monkeypatch.setattr(Unkillable, "kills", 0)
    clock = Clock()
    terms = Terms({"arguments": []}, messages.Go(["test_1"], {}, {}), engine_timeout=10.0)
    made = Links(Engine(), terms, clock=clock)
    made.receive(0.0)
    return made, clock


@pytest.mark.fault
def test_items_do_not_wait_for_a_node_whose_step_cannot_be_killed(unkillable: tuple[Links, Clock]) -> None:
    made, clock = unkillable
    heard = turns(made, clock, 30)
    assert Unkillable.kills, "it was not even tried"
    assert made.outlook().expecting
    assert not [event for event in heard if isinstance(event, messages.NodeOut)], "it may still end"
    out, outlook = [e for e in until_out(made, clock) if isinstance(e, messages.NodeOut | messages.Outlook)]
    assert isinstance(out, messages.NodeOut)
    assert out.why == "no agent within 10 s; its launch command could not be killed"
    assert outlook == made.outlook() == (False, 0)
    assert turns(made, clock, 60) == [], "something was started beside what cannot be killed"
    made.bury()


@pytest.mark.fault
def test_the_end_of_an_allocation_is_said_in_time_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, began = Clock(), Clock.now
    monkeypatch.setattr(Engine, "seconds_left", lambda _self: 120.0 - (clock.now - began))
    made = Links(Engine(), Terms({"arguments": []}, messages.Go([], {}, {}), margin=60.0), clock=clock)
    heard = {type(event): clock.now - began for _ in range(150) for event in turns(made, clock, 1)}
    assert 60 <= heard[messages.AllocationEnding] <= 60 + links.PACE + 1
    assert 105 <= heard[messages.AllocationOver] <= 105 + links.PACE + 1
    made.bury()


@pytest.mark.fault
def test_the_end_of_a_run_does_not_wait_for_such_a_step(unkillable: tuple[Links, Clock]) -> None:
    made, clock = unkillable
    made.send(messages.Finish(True))
    assert not made.gone
    turns(made, clock, 60)
    assert made.gone
    made.bury()
