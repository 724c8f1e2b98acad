"""How a process that we start learns what it is for: one variable in its environment, taken out before any test runs.

Nothing that a test starts may take itself for one of ours, so whoever is meant removes the variable first of all.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeVar

#: How a pytest that we start is told what it is for: by `ondol test`, and by an agent that cannot fork its workers.
FRONT_ENV, WORKER_ENV = "ONDOL_FRONT", "ONDOL_WORKER_START"
#: What the controller writes first to a node program, as a plain line; a node program understands this number only.
FORMAT = 1

#: A captured section longer than this keeps its beginning and its end.
SECTION_LIMIT = 1 << 20


@dataclass
class Place:
    """Where a worker lives and how it is to behave; decided by the agent before the worker starts."""

    name: str
    slot: str
    env: dict[str, str]
    tmpdir: str
    devices: list[dict[str, Any]] = field(default_factory=list)
    hygiene: str = "report"


@dataclass(frozen=True)
class Limits:
    """Of the agent's clock, in seconds. 0 = no limit."""

    startup: float = 120.0
    teardown: float = 300.0
    silence: float = 0.0
    grace: float = 3.0
    reap: float = 60.0
    native_dump: float = 5.0


@dataclass
class Rules:
    """How the agent treats workers, beyond their deadlines."""

    tmpdir: str
    hygiene: str = "report"
    recycle_after: int = 0
    #: Name → target of links that every worker's own TMPDIR must have.
    links: dict[str, str] = field(default_factory=dict)
    #: SIGTERM is a notice that the node will be taken away. Slurm sends it to every process of a step: somebody else
    #: tells the controller, and the agent stays to report what ends.
    term_is_notice: bool = False
    #: Seconds after which its controller ends an agent that does not answer; 0 = never.
    silence: float = 120.0
    #: How many items a busy worker has in its hands beside the one that it runs. 0 after an agent has died: then it is
    #: known for certain which item the next one dies of.
    ahead: int = 8


@dataclass(frozen=True)
class Session:
    """What a spawned worker must know of the session that it joins, so as not to undo or miss anything of it."""

    #: Of pytest's command line, and where that was typed.
    arguments: list[str]
    directory: str
    #: The run's base of temporary directories; empty = it has none.
    base: str
    #: Some tests lie outside of the root: their ids depend on what was named on the command line.
    as_named: bool


_PARTS: dict[str, Any] = {"session": Session, "place": Place, "limits": Limits, "rules": Rules}
_S = TypeVar("_S", bound="Handshake")


@dataclass(frozen=True)
class Handshake:
    """What every handshake can do; each kind is a subclass with its own variable."""

    VARIABLE: ClassVar[str] = ""

    def environment(self) -> dict[str, str]:
        return {self.VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def take(cls: type[_S]) -> _S | None:
        """Out of the environment; None in a process that was not started for this."""
        text = os.environ.pop(cls.VARIABLE, None)
        if text is None:
            return None
        return cls(**{k: _PARTS[k](**v) if k in _PARTS else v for k, v in json.loads(text).items()})


@dataclass(frozen=True)
class UnderFront(Handshake):
    """`ondol test` → pytest: end with me, and write your stacks here when I ask."""

    VARIABLE: ClassVar[str] = FRONT_ENV
    pid: int
    dump: int


@dataclass(frozen=True)
class ForNodes(Handshake):
    """`ondol test` → pytest: the cache wing's settings for the rooms of nodes."""

    VARIABLE: ClassVar[str] = "ONDOL_NODE_SETTINGS"
    settings: dict[str, Any]


@dataclass(frozen=True)
class AsNode(Handshake):
    """Node program → pytest: become the agent of this node. `channel` and `token` lead back to `parent`."""

    VARIABLE: ClassVar[str] = "ONDOL_NODE_START"
    channel: int
    token: str
    node: str
    tmpdir: str
    parent: int


@dataclass(frozen=True)
class AsAgent(Handshake):
    """Controller, or a node's pytest → a new process: be an agent that spawns its workers into this session."""

    VARIABLE: ClassVar[str] = "ONDOL_AGENT_START"
    control: int
    token: str
    limits: Limits
    rules: Rules
    session: Session


@dataclass(frozen=True)
class AsWorker(Handshake):
    """Agent → pytest: be a worker. The numbers are descriptors that it inherits."""

    VARIABLE: ClassVar[str] = WORKER_ENV
    channel: int
    dump: int
    board: int
    lane: int
    token: str
    place: Place
    parent: int
    session: Session
