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
    journal.Quarantine: ("quarantined", "device", "why"),
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


class Timeline:
    """Of a run, as its record tells it."""

    def __init__(self, record: RunRecord) -> None:
        self.seconds = max(0.0, record.last - record.first)
        #: When everything was collected; the end of a run that never came so far.
        self.collected = self.seconds
        self.marks: list[Mark] = []
        self._lanes: dict[str, DeviceLane] = {}
        #: Slot → the worker that lives there, until its end is told.
        self._alive: dict[str, Generation] = {}
        self._preparing: dict[str, tuple[int, float]] = {}
        for slot, known in record.slots.items():
            self._lane(slot, known.device)
        for at, event in record.story:
            self._hear(min(max(0.0, at - record.first), self.seconds), event)
        for slot in list(self._alive):
            self._bury(slot, self.seconds)
        for item, found in enumerate(record.items):
            for attempt in found.attempts:
                begin = attempt.started - record.first
                end = max(begin, attempt.ended - record.first) if attempt.ended else self.seconds
                self._lane(attempt.slot, attempt.device).bars.append(Bar(item, attempt, begin, end, ()))
        used = [lane for lane in self._lanes.values() if lane.bars or lane.generations or lane.prepared or lane.device]
        for lane in used:
            _fit(lane)
        self.lanes = sorted(used, key=lambda lane: lane.node)

    def bars(self) -> list[Bar]:
        return [bar for lane in self.lanes for bar in lane.bars]

    def _lane(self, slot: str, device: str = "") -> DeviceLane:
        if slot not in self._lanes:
            told = device or (slot.removeprefix("gang:") if slot.startswith("gang:") else "")
            self._lanes[slot] = DeviceLane(slot, told, node_of(slot))
        return self._lanes[slot]

    def _hear(self, at: float, event: journal.Event) -> None:
        match event:
            case journal.Planned():
                self.collected = at
            case messages.WorkerUp():
                self._bury(event.slot, at)
                self._alive[event.slot] = Generation(event.worker, max(0.0, at - event.took), at, at)
            case messages.WorkerEnded():
                self._bury(event.slot, at, event)
            case journal.Preparing():
                self._prepare(at, event)
            case _:
                kind, where, why = _MARKS.get(type(event), ("", "", ""))
                self.marks += [Mark(at, kind, getattr(event, where, ""), str(getattr(event, why)))] if kind else []

    def _bury(self, slot: str, at: float, event: messages.WorkerEnded | None = None) -> None:
        if born := self._alive.pop(slot, None):
            told = (event.why, event.abnormal, event.ran) if event else ("", False, 0)
            self._lane(slot).generations.append(Generation(born.worker, born.asked, born.up, at, *told))

    def _prepare(self, at: float, event: journal.Preparing) -> None:
        if event.item is not None:
            self._preparing[event.slot] = event.item, at
        elif event.slot in self._preparing:
            item, begin = self._preparing.pop(event.slot)
            self._lane(event.slot).prepared.append((item, begin, at))


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
