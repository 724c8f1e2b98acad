"""Every message between the processes of a run: one frozen type each, made at one end, matched at the other.

Fields, never sentences: `why` and `reason` are for people, and nothing is decided by what they say. `dump` and `load`
are used by `wire` only. What is not exactly one of these types is garbage, whoever sent it: a test shares
its process with our end of the channel. Reports travel as one block of bytes, which only the controller opens.
"""

import json
import sys
from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

Report: TypeAlias = dict[str, Any]
#: How an attempt ended: by itself, or as said.
How = Literal["done", "crashed", "timeout", "device-lost", "interrupted"]
#: What the worker knows about why an item failed, beyond the text of the failure.
Fault = Literal["", "runtime-open"]
#: A worker died after its last item, in which part of its end.
Late = Literal["", "finaliser", "exit handler"]


def never(message: NoReturn) -> NoReturn:
    """At the end of every match: the type checker knows that all were handled."""
    raise AssertionError(f"unhandled message {message!r}")


# ---------------------------------------------------------------------- controller → agent


class RunItem(NamedTuple):
    """Hand `item` to the worker of `slot`; the agent passes it on as it is."""

    slot: str
    item: int
    attempt: int
    #: The collected item that it concerns: another one than `item` when it only prepares that one.
    target: int
    nodeid: str
    fresh: bool = False
    last: bool = False
    hint: int | None = None
    hint_nodeid: str = ""
    more: bool = False
    timeout: float = 0.0
    runtime: str = ""
    prepare: bool = False
    prepared: Any = None
    env: dict[str, str] = {}
    devices: Sequence[dict[str, Any]] = ()


class Probe(NamedTuple):
    """Ask whether the device is healthy."""

    device: str
    env: dict[str, str]
    command: Sequence[str]
    timeout: float


class Finish(NamedTuple):
    """Nothing more will come. `good`: the run went well as far as is known."""

    good: bool = False


#: Give back what the slot was handed and has not started.
Revoke = NamedTuple("Revoke", [("slot", str)])
#: End the slot's worker.
Retire = NamedTuple("Retire", [("slot", str)])
#: Try once more to start a worker there.
Resume = NamedTuple("Resume", [("slot", str)])
#: The device is set aside: end what runs there.
Lose = NamedTuple("Lose", [("slot", str), ("why", str)])
#: Start so many workers now; where they will live is told when items come.
Warm = NamedTuple("Warm", [("workers", int)])
#: To an agent that was started before anything was collected: what the session that it serves has become.
Join = NamedTuple("Join", [("base", str), ("as_named", bool), ("homes", Sequence[dict[str, str]])])
#: Ctrl-C.
Interrupt = NamedTuple("Interrupt", [])
#: End everything, now.
Kill = NamedTuple("Kill", [])
#: Are you there?
Ping = NamedTuple("Ping", [])
Command = RunItem | Revoke | Retire | Resume | Lose | Probe | Warm | Join | Interrupt | Finish | Kill | Ping

# ---------------------------------------------------------------------- controller → node, before its agent listens


class Go(NamedTuple):
    """Become the agent, if you have collected these too."""

    ids: Sequence[str]
    limits: dict[str, float]
    rules: dict[str, Any]
    #: They are a part of what the controller collected (`--rerun`, `--shard`).
    chosen: bool = False


#: Mend the cache that made `item` fail: for the node program, which knows the node's caches.
Heal = NamedTuple("Heal", [("slot", str), ("item", int), ("text", str)])

# ---------------------------------------------------------------------- agent ↔ worker


class Done(NamedTuple):
    """The item has ended, and the worker is fit to say so."""

    item: int
    attempt: int
    #: Items that this worker has run.
    ran: int
    dirt: Sequence[Sequence[str]] = ()
    #: The device context is unusable, for this reason.
    poison: str | None = None
    #: `pytest.exit`: message and status.
    exit: Sequence[Any] | None = None
    #: What came out of pytest's protocol although nothing should.
    escaped: str = ""
    prepared: Any = None
    fault: Fault = ""
    #: The item that it was handed ahead and begins now.
    begins: int | None = None
    #: When it ended, by the clock of its machine: it may be read much later.
    at: float = float("inf")
    #: Reports of its phases.
    block: bytes = b""

    @property
    def well(self) -> bool:
        """Nothing about it could make anybody want another worker for the next item."""
        return not (self.dirt or self.poison or self.exit or self.escaped or self.fault)


#: A spawned worker has collected everything and waits to be told where to live.
Spare = NamedTuple("Spare", [])
#: Agent → worker: live at this place; `base` is the run's base of temporary directories.
MoveIn = NamedTuple("MoveIn", [("place", dict[str, Any]), ("base", str)])
#: A worker on devices of another model has collected for itself: what, and what of it `skipif` skips there.
Listed = NamedTuple("Listed", [("slot", str), ("ids", Sequence[str]), ("skipped", Sequence[str])])
#: A worker is ready.
Hello = NamedTuple("Hello", [])
#: Its fixtures are finished; only exit handlers are left to run.
Left = NamedTuple("Left", [])
#: A warning; of no item when it came between two.
Warned = NamedTuple("Warned", [("item", int | None), ("attempt", int | None), ("data", dict[str, Any])])
#: A wider fixture's finaliser failed after its last item had ended.
LateReport = NamedTuple("LateReport", [("item", int), ("data", Report)])
#: The worker could not do its work: a fault of ours.
Broken = NamedTuple("Broken", [("worker", str), ("text", str)])
#: What the worker's plugins and conftests hand over at its end, as a Python literal.
Output = NamedTuple("Output", [("worker", str), ("text", str)])
#: What another item needs is torn down no longer: the answer to `Clear`.
Cleared = NamedTuple("Cleared", [])
#: Agent → worker: tear down what this item does not need.
Clear = NamedTuple("Clear", [("target", int), ("nodeid", str)])
#: Agent → worker: finish your fixtures and leave.
End = NamedTuple("End", [])
FromWorker = Spare | Listed | Hello | Cleared | Done | Left | Warned | LateReport | Output | Broken
ToWorker = MoveIn | RunItem | Clear | End

# ---------------------------------------------------------------------- agent → controller


class Ended(NamedTuple):
    """An attempt has ended; said once for each `Started`."""

    slot: str
    worker: str
    item: int
    attempt: int
    how: How
    reason: str = ""
    warm: bool = False
    #: What is in the block, once the controller has opened it.
    reports: Sequence[Report] = ()
    dirt: Sequence[Sequence[str]] = ()
    poison: str | None = None
    exit: Sequence[Any] | None = None
    escaped: str = ""
    prepared: Any = None
    fault: Fault = ""
    #: Bytes on the worker's channel that were no message of ours.
    garbage: int = 0
    #: Of an attempt that was cut off: what it had printed, its stacks, the phase that it was in.
    output: dict[str, str] = {}
    dump: str = ""
    phase: str = ""
    block: bytes = b""


class WorkerEnded(NamedTuple):
    """A worker is gone."""

    slot: str
    worker: str
    why: str
    abnormal: bool
    ran: int
    late: Late = ""
    #: Its last item, if the worker died in a finaliser that belongs to it.
    blamed: int | None = None


class WorkerUp(NamedTuple):
    """A worker has said hello, so many seconds after it was asked for."""

    slot: str
    worker: str
    pid: int
    took: float = 0.0


#: The item begins.
Started = NamedTuple("Started", [("slot", str), ("worker", str), ("item", int), ("attempt", int), ("warm", bool)])
#: These were handed to the slot and will not be started.
Revoked = NamedTuple("Revoked", [("slot", str), ("items", Sequence[int])])
#: The slot has no worker any more.
Retired = NamedTuple("Retired", [("slot", str)])
#: No worker came to life there.
StartFailed = NamedTuple("StartFailed", [("slot", str), ("worker", str), ("why", str)])
#: SIGKILL does not end what runs there.
Unreapable = NamedTuple("Unreapable", [("slot", str), ("why", str)])
#: What a health probe said; None = healthy.
Probed = NamedTuple("Probed", [("device", str), ("fault", str | None)])
#: What was done about the cache; empty = nothing could be.
Healed = NamedTuple("Healed", [("item", int), ("what", str)])
#: The answer to `Ping`.
Pong = NamedTuple("Pong", [])
FromAgent = WorkerUp | Started | Ended | Revoked | Retired | StartFailed | WorkerEnded | Unreapable | Probed | Pong
AgentEvent = FromAgent | Listed | Healed | Warned | LateReport | Output | Broken

# ---------------------------------------------------------------------- node → the engine's links


class Collected(NamedTuple):
    """What the node collected and what it offers."""

    errors: Sequence[str]
    devices: Sequence[dict[str, Any]]
    cpus: int
    host: str
    mode: str
    python: str


#: First of all; `version` decides whether anything else is understood.
Here = NamedTuple("Here", [("version", str), ("host", str), ("pid", int)])
Collecting = NamedTuple("Collecting", [("file", str)])
#: The next message is read by the agent.
Ready = NamedTuple("Ready", [])
#: The node will be taken away.
Notice = NamedTuple("Notice", [("why", str)])
NodeNote = NamedTuple("NodeNote", [("node", str), ("text", str)])


class NodeRoom(NamedTuple):
    """What the room of a node has to say."""

    node: str
    status: int
    room: dict[str, Any]
    lines: Sequence[str] = ()


#: Nothing runs there any more; what is new in the room is published.
Harvest = NamedTuple("Harvest", [])
#: Last words about what went wrong. `hopeless`: trying again would end in the same way.
Gone = NamedTuple("Gone", [("why", str), ("hopeless", bool)])
#: Everything went well.
Bye = NamedTuple("Bye", [])
OfNode = Here | Collecting | Collected | Ready | NodeNote | Notice | NodeRoom | Harvest | Gone | Bye
FromNode = OfNode | AgentEvent
ToNode = Command | Go | Heal
#: Everything that travels.
Message = FromNode | ToNode | FromWorker | ToWorker

# ---------------------------------------------------------------------- the engine's links → controller: in one process


class NodeUp(NamedTuple):
    """It has collected the same items; its devices and slots are named with it."""

    node: str
    devices: Sequence[dict[str, Any]]
    #: Device → its slots.
    slots: dict[str, list[str]] = {}
    prepare_slots: Sequence[str] = ()
    host: str = ""
    mode: str = ""
    python: str = ""
    waited: float = 0.0
    collected: float = 0.0


#: Its agent is gone and what ran there ended, as `how` says; it may come back.
NodeLost = NamedTuple("NodeLost", [("node", str), ("why", str), ("how", How)])
#: It is not asked again.
NodeOut = NamedTuple("NodeOut", [("node", str), ("why", str), ("log", str)])
#: It will be taken away: it finishes what runs, if that can, and gets nothing new.
NodeNotice = NamedTuple("NodeNotice", [("node", str), ("why", str)])
#: After each of these: are more nodes expected, and how many are left?
Outlook = NamedTuple("Outlook", [("expecting", bool), ("left", int)])
#: For nodes that nobody can name yet.
EngineWaits = NamedTuple("EngineWaits", [("engine", str), ("what", str)])
NodeWaits = NamedTuple("NodeWaits", [("node", str), ("what", str)])
#: In time: what runs may still finish.
AllocationEnding = NamedTuple("AllocationEnding", [("why", str)])
#: What runs now would be killed with everything that could report it.
AllocationOver = NamedTuple("AllocationOver", [("why", str)])
Waits = EngineWaits | NodeWaits | NodeNote | NodeRoom | AllocationEnding | AllocationOver
NodeStory = NodeUp | NodeLost | NodeOut | NodeNotice
NodeEvent = NodeStory | Outlook | Waits
Event = AgentEvent | NodeEvent
#: How the other end of a link ended: well, and in words.
Buried = NamedTuple("Buried", [("clean", bool), ("how", str)])

# ---------------------------------------------------------------------- packing


def _accepted(hint: Any) -> tuple[tuple[type, ...], tuple[type, ...], tuple[Any, ...]]:
    """Types of a value, types of what it holds, and the only values that it may have."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return (object,), (), ()
    if origin is Literal:
        return (str,), (), inner
    if origin in (Union, UnionType):
        return tuple(t for one in inner for t in _accepted(one)[0]), (), ()
    if origin is Sequence:
        return (list, tuple), _accepted(inner[0])[0], ()
    return ((int, float) if hint is float else (origin or hint,)), (), ()


_KNOWN: dict[str, tuple[Any, list[Any]]] = {
    kind.__name__: (kind, [_accepted(hint) for hint in get_type_hints(kind).values()]) for kind in get_args(Message)
}


#: Between the fields and a block of reports; JSON has none of its own.
_TAB = b"\t"
to_json = json.JSONEncoder(default=repr, separators=(",", ":")).encode


def dump(message: Message) -> bytes:
    """On one line: the fields as JSON, and after a tab the block of reports as it is."""
    fields = [type(message).__name__, *message]
    block = _TAB + fields.pop() if isinstance(fields[-1], bytes) else b""
    return to_json(fields).encode() + block


def load(line: bytes) -> Message | None:
    """None for what is none of the messages above."""
    fields, tab, block = line.partition(_TAB)
    try:
        name, *values = json.loads(fields) + ([block] if tab else [])
        kind, accepted = _KNOWN[name]
        for value, (types, inner, only) in zip(values, accepted, strict=False):
            if not isinstance(value, types) or (only and value not in only):
                return None
            if inner and not all(isinstance(one, inner) for one in value):
                return None
        made: Message = kind(*values)
    except (ValueError, TypeError, LookupError):
        return None
    return made


def as_block(reports: Sequence[bytes]) -> bytes:
    """Reports, each of them JSON already, as they travel."""
    return b"[" + b",".join(reports) + b"]" if reports else b""


def opened(block: bytes) -> list[Report]:
    """The reports in it; what a test wrote into our channel instead are none."""
    try:
        found = json.loads(block or b"[]")
    except ValueError:
        return []
    reports = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    for report in reports:
        report.update({name: once(report[name]) for name in ("when", "outcome") if name in report})
    return reports


def once(word: Any) -> Any:
    """The same object each time: every report brings its own copy of words that thousands of them share."""
    return sys.intern(word) if type(word) is str else word
