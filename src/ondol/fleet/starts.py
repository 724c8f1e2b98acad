"""How a process that we start learns what it is for: one variable in its environment, taken out before any test runs.

Nothing that a test starts may take itself for one of ours, so whoever is meant removes the variable first of all.
"""

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

#: How a pytest that we start is told what it is for: by `ondol test`, and by an agent that cannot fork its workers.
FRONT_ENV, WORKER_ENV = "ONDOL_FRONT", "ONDOL_WORKER_START"
#: The names of a worker's devices; of one that has no slot yet, the device that it was started for.
DEVICE_ENV = "ONDOL_DEVICE"
#: What the controller writes first to a node program, as a plain line; a node program understands this number only.
FORMAT = 1

#: A captured section longer than this keeps its beginning and its end.
SECTION_LIMIT = 1 << 20


class Place(NamedTuple):
    """Where a worker lives and how it is to behave; decided by the agent before the worker starts."""

    name: str
    slot: str
    env: dict[str, str]
    tmpdir: str
    devices: list[dict[str, Any]] = []
    hygiene: str = "report"

    @property
    def collects(self) -> bool:
        """What was collected is not for its devices: the worker is a new process, and collects for itself."""
        return any(device.get("of_other_model") for device in self.devices)


class Limits(NamedTuple):
    """Of the agent's clock, in seconds. 0 = no limit."""

    startup: float = 120.0
    teardown: float = 300.0
    silence: float = 0.0
    grace: float = 3.0
    reap: float = 60.0
    native_dump: float = 5.0


class Rules(NamedTuple):
    """How the agent treats workers, beyond their deadlines."""

    tmpdir: str
    hygiene: str = "report"
    recycle_after: int = 0
    #: Name → target of links that every worker's own TMPDIR must have.
    links: dict[str, str] = {}
    #: SIGTERM is a notice that the node will be taken away. Slurm sends it to every process of a step: somebody else
    #: tells the controller, and the agent stays to report what ends.
    term_is_notice: bool = False
    #: Seconds after which its controller ends an agent that does not answer; 0 = never.
    silence: float = 120.0
    #: How many items a busy worker has in its hands beside the one that it runs. 0 after an agent has died: then it is
    #: known for certain which item the next one dies of.
    ahead: int = 8


class Session(NamedTuple):
    """What a spawned worker must know of the session that it joins, so as not to undo or miss anything of it."""

    #: Of pytest's command line, and where that was typed.
    arguments: list[str]
    directory: str
    #: The run's base of temporary directories; empty = it has none.
    base: str
    #: Some tests lie outside of the root: their ids depend on what was named on the command line.
    as_named: bool
    #: For a suite that takes its device while it is collected: what each device's worker has in its environment. One
    #: that collects before it is known where it lives must be started for a device then.
    homes: Sequence[dict[str, str]] = ()


class UnderFront(NamedTuple):
    """`ondol test` → pytest: end with me, and write your stacks here when I ask."""

    pid: int
    dump: int


class ForNodes(NamedTuple):
    """`ondol test` → pytest: the cache wing's settings for the rooms of nodes."""

    settings: dict[str, Any]


class AsNode(NamedTuple):
    """Node program → pytest: become the agent of this node. `channel` and `token` lead back to `parent`."""

    channel: int
    token: str
    node: str
    tmpdir: str
    parent: int


class AsAgent(NamedTuple):
    """Controller, or a node's pytest → a new process: be an agent that spawns its workers into this session."""

    control: int
    token: str
    limits: Limits
    rules: Rules
    session: Session


class AsWorker(NamedTuple):
    """Agent → pytest: be a worker. The numbers are descriptors that it inherits."""

    channel: int
    dump: int
    board: int
    lane: int
    token: str
    place: Place
    parent: int
    session: Session


_S = TypeVar("_S", UnderFront, ForNodes, AsNode, AsAgent, AsWorker)
_VARIABLES: dict[type, str] = {
    UnderFront: FRONT_ENV,
    ForNodes: "ONDOL_NODE_SETTINGS",
    AsNode: "ONDOL_NODE_START",
    AsAgent: "ONDOL_AGENT_START",
    AsWorker: WORKER_ENV,
}
_PARTS: dict[str, Any] = {"session": Session, "place": Place, "limits": Limits, "rules": Rules}


def as_environment(start: UnderFront | ForNodes | AsNode | AsAgent | AsWorker) -> dict[str, str]:
    """What the environment of the process that is started must have."""
    fields = {name: value._asdict() if name in _PARTS else value for name, value in start._asdict().items()}
    return {_VARIABLES[type(start)]: json.dumps(fields)}


def take(kind: type[_S]) -> _S | None:
    """Out of the environment; None in a process that was not started for this."""
    text = os.environ.pop(_VARIABLES[kind], None)
    if text is None:
        return None
    return kind(**{k: _PARTS[k](**v) if k in _PARTS else v for k, v in json.loads(text).items()})
