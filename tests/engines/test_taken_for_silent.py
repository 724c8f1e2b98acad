"""A controller that stood still itself (Ctrl-Z, a frozen machine, a slow hook of somebody's plugin) and then finds that
it has heard nothing for long: a node is silent when it does not answer, not when nobody asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engines.test_unkillable import Clock, Engine
from ondol import __version__
from ondol.engines import links
from ondol.engines.launch import Launch
from ondol.engines.links import Links, Terms
from ondol.fleet import messages, wire
from ondol.fleet.messages import Event, FromNode

SILENCE = 120.0


class Answers(Launch):
    """A real `cat`: what is sent to it comes back. It stands for a node that answers at once, or never."""

    deaf = False
    token = b""

    def send(self, data: bytes) -> None:
        if not self.token:
            self.token = json.loads(data)["token"].encode()
        elif not self.deaf and data == wire.encode(self.token, messages.Ping()):
            self.says(messages.Pong())

    def says(self, *said: FromNode) -> None:
        for message in said:
            super().send(wire.encode(self.token, message))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Links]:
    """One node that is up."""
    monkeypatch.setattr(links, "Launch", Answers)
    made = Links(Engine(), Terms({"arguments": []}, messages.Go([], {}, {}), silence=SILENCE), clock=clock)
    try:
        made.receive(0.0)
        collected = messages.Collected([], [], 1, "", "", "")
        node_of(made).says(messages.Here(__version__, "", 1), collected, messages.Ready())
        while made.nodes["n1"].state != "up":
            made.receive(1.0)
        yield made
    finally:
        made.bury()


def node_of(made: Links) -> Answers:
    launch = made.nodes["n1"].launch
    assert isinstance(launch, Answers)
    return launch


def heard_until(made: Links, clock: Clock, end: float) -> list[Event]:
    """What the controller hears while it looks once a second; an answer is there before the next second begins."""
    heard: list[Event] = []
    while clock.now < end:
        heard += made.receive(0.0)
        while made.nodes["n1"].owes and not node_of(made).deaf:
            heard += made.receive(1.0)
        clock.now += 1.0
    return heard


def lost(heard: list[Event]) -> list[str]:
    return [event.why for event in heard if isinstance(event, messages.NodeLost)]


def test_a_controller_that_stood_still_does_not_take_its_nodes_for_silent(made: Links, clock: Clock) -> None:
    heard = heard_until(made, clock, clock.now + 60)
    clock.now += 1.6 * SILENCE
    heard += made.receive(0.0)
    heard += heard_until(made, clock, clock.now + 4 * SILENCE)
    assert lost(heard) == []


def test_a_node_that_does_not_answer_is_missed(made: Links, clock: Clock) -> None:
    heard = heard_until(made, clock, clock.now + 60)
    node_of(made).deaf, began = True, clock.now
    while not lost(heard):
        assert clock.now < began + 2 * SILENCE, "it was never missed"
        heard += heard_until(made, clock, clock.now + 1)
    assert lost(heard) == ["silent for 120 s"]
    assert clock.now - began <= SILENCE + 2


def test_a_node_that_does_not_answer_a_controller_that_stood_still_is_missed(made: Links, clock: Clock) -> None:
    node_of(made).deaf = True
    clock.now += 1.6 * SILENCE
    heard = heard_until(made, clock, clock.now + SILENCE / 2 + 3)
    assert lost(heard) == ["silent for 120 s"]
