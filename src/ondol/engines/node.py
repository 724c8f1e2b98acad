"""One launch command's node as the controller sees it: from the start of the command to its end."""

from dataclasses import dataclass

from ondol.engines.launch import Launch
from ondol.fleet import wire
from ondol.fleet.messages import Collected, ToNode


@dataclass
class Node:
    """Its state, in order:

    `waiting`     its launch command runs, the node program has not been heard: queueing, booting, logging in
    `collecting`  the node program is there and pytest collects, or waits for us to have collected
    `up`          it collected what we collected, and its agent runs items
    `leaving`     told to finish; its workers end
    `harvesting`  its workers have ended; it publishes what is new in its room
    `ending`      its launch command was cancelled and has not ended
    `over`        nothing runs there any more, and nothing will
    """

    name: str
    launch: Launch
    token: bytes
    #: When this state began.
    since: float
    #: Agents that were lost here.
    losses: int = 0
    state: str = "waiting"
    #: When its collection last moved.
    progress: float = 0.0
    #: Seconds until the node program answered, and, once it is up, until it had collected.
    waited: float = 0.0
    collected: float = 0.0
    #: When it had, by our clock.
    offered: float = 0.0
    #: The file that it was collecting, and what it said when it failed.
    file: str = ""
    problem: str = ""
    #: A process there died, and only its standard error may say why.
    unexplained: bool = False
    #: Trying again would end in the same way.
    hopeless: bool = False
    #: Started before this process had collected: what it met then may have been half written by our own collection.
    early: bool = False
    #: Why an early one failed, when it has to begin again.
    spoilt: str = ""
    #: It said goodbye.
    clean: bool = False
    noticed: bool = False
    #: What it has, as it said when it had collected.
    offer: Collected | None = None

    def __post_init__(self) -> None:
        self.decoder = wire.Decoder(self.token)
        #: When it last said anything, when it was last asked.
        self.heard = self.asked = self.since
        #: Since when it owes us an answer: nobody was asked while this process itself stood still.
        self.owes: float | None = None

    def enter(self, state: str, now: float) -> None:
        self.state, self.since, self.progress = state, now, now

    def send(self, message: ToNode) -> None:
        self.launch.send(wire.encode(self.token, message))

    @property
    def on_its_way(self) -> bool:
        return self.state in {"waiting", "collecting"}

    @property
    def listens(self) -> bool:
        return self.state in {"up", "leaving"}

    @property
    def running(self) -> bool:
        """Its launch command has not ended."""
        return self.state != "over"
