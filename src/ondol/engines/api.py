"""The Engine contract: who gives the run its nodes, and which command carries an agent's standard streams there.

Allocation, authentication, binding of devices and killing stay the engine's: `srun`, `ssh`, `docker run`, a site's
broker. An engine only says which command to start for a node and what it knows when that command has ended.
"""

import os
from typing import NamedTuple, Protocol

LOCAL = "local"


class NodeOptions(NamedTuple):
    """The options that say where nodes come from."""

    engine: str = LOCAL
    launch: str = ""
    nodes: str = ""
    slurm: str = ""
    srun: str = ""
    agent: str = ""
    devices: str = "auto"
    directory: str = ""

    @property
    def far(self) -> bool:
        """Somewhere else than in this process's own machine."""
        return self.engine != LOCAL or bool(self.launch)


class Gone(NamedTuple):
    """Why a node's agent is no longer there, as far as the engine knows."""

    #: In words; empty when the engine knows nothing.
    why: str = ""
    #: The machine, its allocation or its device was taken away: what ran there is not to blame.
    machine: bool = False
    #: Starting another agent there makes sense.
    again: bool = True


class Engine(Protocol):
    """One run's nodes. Every method returns at once or within seconds; none raises after `open`.

    `open` asks for nodes and raises `OndolError` when that cannot work (no such program, a bad template). Then
    `nodes` is asked again and again: a list that only grows. Who inherits says only what it knows.
    """

    #: For messages: `slurm`, `ssh`, `docker` …
    name: str

    def open(self) -> None: ...
    def nodes(self) -> list[str]: ...

    def command(self, node: str) -> list[str]:
        """What starts the node program on `node` with our standard input and output as its own."""

    def pending(self) -> str:
        """What more nodes wait for, while some may come."""
        return ""

    def refused(self) -> str:
        """Why no more come although they were asked for."""
        return ""

    def environment(self) -> dict[str, str]:
        """The environment of that command."""
        return dict(os.environ)

    def arguments(self, node: str) -> list[str]:  # noqa: ARG002
        """For the node's pytest, after everybody else's."""
        return []

    def why_waiting(self, node: str) -> str:  # noqa: ARG002
        """What its command waits for, while the node program has not been heard; empty when nobody knows."""
        return ""

    def why_gone(self, node: str) -> Gone:  # noqa: ARG002
        """After its command has ended, or its node program was told that it will be ended."""
        return Gone()

    def seconds_left(self) -> float | None:
        """Until everything is taken away; None when nobody will."""
        return None

    def close(self) -> None:
        """Give back everything that `open` and `command` took; at any time, and twice."""
        return
