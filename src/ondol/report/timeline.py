"""A run as lanes of bars: one lane for each place where workers live, one bar for each attempt. Pure.

Seconds count from the run's first event. Times are those at which the controller heard of something, so they are made
to fit: in a lane nothing overlaps, an attempt lies inside its worker's life, a phase inside its attempt.
"""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from ondol.fleet import journal, messages
from ondol.fleet.model import node_of
from ondol.fleet.record import AttemptRecord, RunRecord


class Phase(NamedTuple):
    name: str
    begin: float
    end: float


class Bar(NamedTuple):
    item: int
    attempt: AttemptRecord
    begin: float
    end: float
    phases: tuple[Phase, ...]


class Generation(NamedTuple):
    """One worker: asked for, up, gone."""

    worker: str
    asked: float
    up: float
    end: float
    why: str = ""
    abnormal: bool = False
    ran: int = 0


class Mark(NamedTuple):
    """Something that happened to a device, to a node or to the run."""

    at: float
    kind: str
    where: str
    text: str


#: Event → what it is called, and its fields that say where and why.
_MARKS: dict[type, tuple[str, str, str]] = {
    journal.Quarantine: ("set aside", "device", "why"),
    journal.AgentDied: ("agent died", "", "why"),
    journal.Stopped: ("stopped", "", "reason"),
    messages.NodeUp: ("node up", "node", "host"),
    messages.NodeLost: ("node lost", "node", "why"),
    messages.NodeOut: ("node lost", "node", "why"),
    messages.NodeNotice: ("node leaves", "node", "why"),
    messages.StartFailed: ("no worker", "slot", "why"),
    messages.Healed: ("cache healed", "", "what"),
}


@dataclass
class DeviceLane:
    slot: str
    device: str
    node: str
    bars: list[Bar] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    #: (item, begin, end) of what it prepared for items that run elsewhere.
    prepared: list[tuple[int, float, float]] = field(default_factory=list)


@dataclass
class Timeline:
    seconds: float
    #: When everything was collected; the end of a run that never came so far.
    collected: float
    lanes: list[DeviceLane]
    marks: list[Mark]

    def bars(self) -> list[Bar]:
        return [bar for lane in self.lanes for bar in lane.bars]


def of(record: RunRecord) -> Timeline:
    return _Builder(record).build()


class _Builder:
    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.end = max(0.0, record.last - record.first)
        self.lanes: dict[str, DeviceLane] = {}
        self.marks: list[Mark] = []
        self.collected = self.end
        #: Slot → the worker that lives there, until its end is told.
        self.alive: dict[str, Generation] = {}
        self.preparing: dict[str, tuple[int, float]] = {}

    def build(self) -> Timeline:
        for slot, known in self.record.slots.items():
            self.lane(slot, known.device)
        for at, event in self.record.story:
            self.hear(min(max(0.0, at - self.record.first), self.end), event)
        for slot in list(self.alive):
            self.bury(slot, self.end)
        for item, found in enumerate(self.record.items):
            for attempt in found.attempts:
                begin = attempt.started - self.record.first
                end = max(begin, attempt.ended - self.record.first) if attempt.ended else self.end
                self.lane(attempt.slot, attempt.device).bars.append(Bar(item, attempt, begin, end, ()))
        lanes = [lane for lane in self.lanes.values() if lane.bars or lane.generations or lane.prepared or lane.device]
        for lane in lanes:
            _fit(lane)
        return Timeline(self.end, self.collected, sorted(lanes, key=lambda lane: lane.node), self.marks)

    def lane(self, slot: str, device: str = "") -> DeviceLane:
        if slot not in self.lanes:
            told = device or (slot.removeprefix("gang:") if slot.startswith("gang:") else "")
            self.lanes[slot] = DeviceLane(slot, told, node_of(slot))
        return self.lanes[slot]

    def hear(self, at: float, event: journal.Event) -> None:
        match event:
            case journal.Planned():
                self.collected = at
            case messages.WorkerUp():
                self.bury(event.slot, at)
                self.alive[event.slot] = Generation(event.worker, max(0.0, at - event.took), at, at)
            case messages.WorkerEnded():
                self.bury(event.slot, at, event)
            case journal.Preparing():
                self.prepare(at, event)
            case _:
                kind, where, why = _MARKS.get(type(event), ("", "", ""))
                self.marks += [Mark(at, kind, getattr(event, where, ""), str(getattr(event, why)))] if kind else []

    def bury(self, slot: str, at: float, event: messages.WorkerEnded | None = None) -> None:
        if born := self.alive.pop(slot, None):
            told = (event.why, event.abnormal, event.ran) if event else ("", False, 0)
            self.lane(slot).generations.append(Generation(born.worker, born.asked, born.up, at, *told))

    def prepare(self, at: float, event: journal.Preparing) -> None:
        if event.item is not None:
            self.preparing[event.slot] = event.item, at
        elif event.slot in self.preparing:
            item, begin = self.preparing.pop(event.slot)
            self.lane(event.slot).prepared.append((item, begin, at))


def _fit(lane: DeviceLane) -> None:
    """Nothing overlaps: a batch of short items is heard of at one moment, and their phases say how long they took."""
    lives = {life.worker: life for life in lane.generations}
    lane.bars.sort(key=lambda bar: (bar.begin, bar.end))
    before, fitted, later = 0.0, [], inf
    for place, bar in reversed([*enumerate(lane.bars)]):
        end = min(bar.end, later)
        later = min(bar.begin, end - bar.attempt.seconds)
        lane.bars[place] = bar._replace(begin=later, end=end)
    for bar in lane.bars:
        life = lives.get(bar.attempt.worker)
        lowest, highest = (max(before, life.up), life.end) if life else (before, bar.end)
        end = max(lowest, min(bar.end, highest))
        begin = max(lowest, min(bar.begin, end))
        fitted.append(bar._replace(begin=begin, end=end, phases=_phases(bar.attempt, begin, end)))
        before = end
    lane.bars = fitted


def _phases(attempt: AttemptRecord, begin: float, end: float) -> tuple[Phase, ...]:
    """One after the other; the one that was cut off lasts until the end."""
    found = []
    for phase in attempt.phases:
        if not phase.get("when"):
            continue
        until = min(end, begin + max(0.0, float(phase.get("duration") or 0.0)))
        found.append(Phase(str(phase["when"]), begin, until))
        begin = until
    if attempt.phase:
        found.append(Phase(attempt.phase, begin, end))
    return tuple(found)
