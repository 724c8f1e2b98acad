"""One node as the controller sees it: from the start of its launch command to the end of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ondol.engines.launch import Launch
from ondol.fleet import wire
from ondol.fleet.messages import Collected, ToNode
from ondol.fleet.starts import FORMAT


@dataclass
class Node:
    """Its state, in order:

    `waiting`     its launch command runs, the node program has not been heard: queueing, booting, logging in
    `collecting`  the node program is there and pytest collects
    `up`          it collected what we collected, and its agent runs items
    `leaving`     told to finish; its workers end
    `harvesting`  its workers have ended; it publishes what is new in its room
    `ending`      its launch command was cancelled and has not ended
    `over`        nothing runs there any more, and nothing will
    """

    name: str
    token: bytes = b""
    state: str = "over"
    launch: Launch | None = None
    decoder: wire.Decoder = field(default_factory=lambda: wire.Decoder(b""))
    #: When this state began, when its collection last moved, when it last said anything, when it was last asked.
    since: float = 0.0
    progress: float = 0.0
    heard: float = 0.0
    asked: float = 0.0
    #: Seconds until the node program answered, and until it had collected.
    waited: float = 0.0
    collected: float = 0.0
    #: The file that it was collecting, and what it said when it failed.
    file: str = ""
    problem: str = ""
    #: A process there died, and only its standard error may say why.
    unexplained: bool = False
    #: Trying again would end in the same way.
    hopeless: bool = False
    #: It said goodbye.
    clean: bool = False
    noticed: bool = False
    #: Agents that were lost here.
    losses: int = 0
    #: What it has, as it said when it had collected.
    offer: Collected | None = None

    def begin(self, launch: Launch, token: bytes, instructions: dict[str, Any], now: float) -> None:
        self.launch, self.token = launch, token
        self.decoder = wire.Decoder(token)
        self.state, self.since, self.heard, self.asked = "waiting", now, now, now
        self.file = self.problem = ""
        self.waited = self.collected = 0.0
        self.clean = self.noticed = self.hopeless = self.unexplained = False
        first = {"format": FORMAT, "token": token.decode(), "node": self.name, **instructions}
        launch.send(json.dumps(first).encode() + b"\n")

    def enter(self, state: str, now: float) -> None:
        self.state, self.since, self.progress = state, now, now

    def send(self, message: ToNode) -> None:
        if self.launch is not None:
            self.launch.send(wire.encode(self.token, message))

    @property
    def on_its_way(self) -> bool:
        return self.state in {"waiting", "collecting"}

    @property
    def listens(self) -> bool:
        return self.state in {"up", "leaving"}

    @property
    def ended(self) -> bool:
        """No process of ours belongs to it."""
        return self.launch is None or self.launch.ended()

    @property
    def running(self) -> bool:
        """Its launch command has not ended."""
        return self.state != "over"
