"""The nouns of a run, as the modules that decide see them: work, slots, devices. No I/O, no pytest."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ondol.fleet.messages import Retire, Revoke
from ondol.fleet.verdict import Verdict

#: How files that describe tasks end.
TASK_SUFFIX = ".ondol.toml"
#: The property by which a task that is a command tells its exit status.
EXIT_CODE = "exit_code"


@dataclass(frozen=True, slots=True)
class Work:
    """One item as the scheduler sees it. `index` is its place in the collected list and its only identity."""

    index: int
    #: Items of one module stay together, so that module fixtures are made once.
    module: str
    #: Measured seconds of earlier runs; None when it never ran.
    estimate: float | None = None
    #: How many devices it needs at once. 0 = none: it runs on a CPU slot (preparing a task).
    devices: int = 1
    #: Items of one group never run at the same time.
    group: str = ""
    #: Device memory it declares, in bytes; 0 = an even share of the device.
    memory: int = 0
    #: A process of its own, before and after.
    isolate: bool = False
    #: What its worker must hold open for it. A worker never holds two: loaders and drivers cache per process.
    runtime: str = ""
    #: The parameters that its session-wide fixtures are made with: who has the same ones can share them.
    params: str = ""
    #: The work that must have ended well before this one can run (a task's preparation).
    after: int | None = None
    #: Its name, and its deadline in seconds; 0 = none.
    nodeid: str = ""
    timeout: float = 0.0


class Slot(NamedTuple):
    """A place where one worker lives: one of the workers of one device, or a CPU slot (`device` is empty)."""

    name: str
    device: str
    #: Several devices at once, for the works that need them; the slot is there for as long as it has them.
    gang: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        return self.gang or ((self.device,) if self.device else ())


class Device(NamedTuple):
    """Something items run on. `memory` is its capacity in bytes, 0 when unknown or unlimited."""

    name: str
    kind: str = "cpu"
    #: What `variable` must hold for this device alone.
    visible: str = ""
    memory: int = 0
    #: The machine it is in; empty when there is only this one. Items with several devices get them from one node.
    node: str = ""
    #: The command that says whether it is healthy.
    probe: tuple[str, ...] = ()
    #: What the vendor calls it; empty when nobody can say.
    model: str = ""
    #: Another model than the one that tests are collected for: its workers collect for themselves.
    of_other_model: bool = False
    #: By which a process of this machine is told which devices it sees; empty: by none.
    variable: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """What workers and readers of the journal are told of it."""
        return {name: getattr(self, name) for name in ("name", "kind", "visible", "model", "of_other_model")}


def node_of(slot: str) -> str:
    """Slots of other machines are named `node/device`."""
    head, slash, _ = slot.removeprefix("gang:").partition("/")
    return head if slash else ""


class HandOut(NamedTuple):
    """Hand `work` to the worker of `slot`; `hint` is the work that most probably follows there."""

    slot: str
    work: int
    devices: tuple[str, ...]
    #: The worker must not have run anything before.
    fresh: bool = False
    #: The worker ends after it.
    last: bool = False
    hint: int | None = None
    #: Nothing is known to follow, but something may: keep session fixtures alive.
    more: bool = False


class Unrunnable(NamedTuple):
    """No device can run this: never, or not any more."""

    work: int
    verdict: Verdict
    why: str


Action = HandOut | Revoke | Retire | Unrunnable


@dataclass
class SlotState:
    """What the scheduler knows of one slot."""

    slot: Slot
    #: The list of the pool that it works through; of several devices that are reserved: what for.
    todo: list[int] = field(default_factory=list)
    #: Handed out, in order; the first one is running.
    handed: list[int] = field(default_factory=list)
    #: The work handed out last: what it leaves open suits its like best.
    last: Work | None = None
    #: A worker may be alive there.
    warm: bool = False
    #: A revoke or retire is on its way; hand out nothing until it is answered.
    waiting: bool = False
    #: It was asked and had nothing to give: not asked again before one of its works has ended.
    drained: bool = False
    #: Nothing is handed out there any more.
    down: bool = False

    @property
    def free(self) -> bool:
        return not (self.handed or self.waiting or self.down)
