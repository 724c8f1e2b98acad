"""A run as its events tell it: the only thing that views, reports and summaries read, while it goes on and afterwards.

Read from the journal of a run that was killed, what was seen is real, what was in flight is crashed or interrupted,
what was never reached is not-run. Nothing is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ondol.errors import UsageError
from ondol.fleet import journal, messages
from ondol.fleet.messages import NodeStory, Report, never
from ondol.fleet.verdict import BAD, INCOMPLETE, Attempt, Cause, Verdict

#: What an attempt that was cut off had printed is called, in its `output`.
STREAMS = ("stdout", "stderr")
#: What muted failures are counted as.
MUTED = "known"
#: Their last attempt tells how long the item takes.
MEASURED = {Verdict.PASSED, Verdict.FAILED, Verdict.XFAILED, Verdict.XPASSED}


@dataclass(slots=True)
class AttemptRecord:
    """One attempt."""

    number: int
    device: str = ""
    worker: str = ""
    warm: bool = False
    started: float = 0.0
    ended: float = 0.0
    slot: str = ""
    seconds: float = 0.0
    outcome: str = ""
    cause: str = ""
    reason: str = ""
    text: str = ""
    dump: str = ""
    output: dict[str, str] = field(default_factory=dict)
    dirt: Sequence[Sequence[str]] = ()
    phases: Sequence[dict[str, Any]] = ()
    phase: str = ""
    #: For pytest's own reporters, until they have seen them: the journal has `phases`.
    reports: Sequence[Report] = field(default=(), compare=False, repr=False)
    warnings: Sequence[dict[str, Any]] = field(default=(), compare=False, repr=False)

    def end(self, event: journal.End, at: float) -> None:
        self.outcome, self.cause, self.reason = event.outcome, event.cause, event.reason
        self.text, self.dump, self.output, self.dirt = event.text, event.dump, event.output, event.dirt
        self.phases, self.phase, self.ended = event.phases, event.phase, at
        # What was cut off has no measured phases: then it is the time that passed.
        self.seconds = event.seconds or max(0.0, at - self.started)

    def judged(self) -> Attempt:
        return Attempt(Verdict(self.outcome), Cause(self.cause), self.warm, self.device, self.reason)


@dataclass(slots=True)
class ItemRecord:
    """One planned item and its one verdict."""

    nodeid: str
    attempts: list[AttemptRecord] = field(default_factory=list)
    verdict: str = ""
    flaky: bool = False
    why: str = ""
    #: Why it is muted; empty if it is not.
    known: str = ""

    def settle(self, event: journal.Verdict) -> None:
        self.verdict, self.flaky, self.why = event.verdict, event.flaky, event.why

    @property
    def failed(self) -> bool:
        return self.verdict in BAD

    @property
    def muted(self) -> bool:
        """It failed, as `ondol-known.toml` said that it may."""
        return self.failed and bool(self.known)

    @property
    def bad(self) -> bool:
        """The run is red because of it."""
        return self.failed and not self.known

    def forget_reports(self) -> None:
        for attempt in self.attempts:
            attempt.reports = attempt.warnings = ()


@dataclass
class SlotRecord:
    """What happened in one place for workers."""

    device: str
    workers: int = 0
    done: int = 0


@dataclass
class RunRecord:
    """Everything that is known about a run: what its events say, and nothing else."""

    items: list[ItemRecord] = field(default_factory=list)
    run: journal.Run = field(default_factory=journal.Run)
    quarantines: list[journal.Quarantine] = field(default_factory=list)
    #: Nodes that came, were lost or were left out, in order.
    nodes: list[NodeStory] = field(default_factory=list)
    #: What the rooms of nodes had to say.
    rooms: list[messages.NodeRoom] = field(default_factory=list)
    #: Files that ended the process that collected them.
    fatal: list[journal.CollectionFault] = field(default_factory=list)
    #: The file that is being collected.
    collecting: str = ""
    planned: bool = False
    slots: dict[str, SlotRecord] = field(default_factory=dict)
    #: Slot → the attempt that runs there, or the item that is being prepared there.
    running: dict[str, tuple[int, AttemptRecord]] = field(default_factory=dict)
    preparing: dict[str, int] = field(default_factory=dict)
    #: Node or engine → what it is waiting for, while it is on its way.
    waiting: dict[str, str] = field(default_factory=dict)
    engine: str = ""
    notes: list[str] = field(default_factory=list)
    #: Entries of `ondol-known.toml` that are past their date and concern an item of this run: they make it red.
    expired: list[str] = field(default_factory=list)
    stopped: journal.Stopped | None = None
    #: The controller wrote its last line.
    complete: bool = False
    status: int | None = None
    first: float = 0.0
    last: float = 0.0
    #: What is not about one attempt, with its time: workers, nodes, devices, preparations.
    story: list[tuple[float, journal.Event]] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """By verdict; failures that are muted are counted apart."""
        found = {verdict.value: 0 for verdict in Verdict} | {MUTED: 0}
        for item in self.items:
            if item.verdict:
                found[MUTED if item.muted else item.verdict] += 1
        return {name: number for name, number in found.items() if number}

    @property
    def bad(self) -> bool:
        return bool(self.fatal or self.expired) or any(item.bad for item in self.items)

    @property
    def unknown(self) -> int:
        """Items of which nobody knows whether they are good."""
        return sum(item.verdict in INCOMPLETE for item in self.items)

    def measured(self) -> dict[str, float]:
        """Node id → how long it took, for those that came to their end."""
        ran = [item for item in self.items if item.attempts and item.verdict in MEASURED]
        return {item.nodeid: round(item.attempts[-1].seconds, 4) for item in ran}

    def apply(self, event: journal.Event, at: float) -> None:  # noqa: C901 - one line per event
        """Take in one event, in the order in which they were written."""
        if self.complete and not isinstance(event, messages.NodeRoom):
            self._forget(RunRecord())  # another run, in the same file; a room is told of when it is closed
        self.first, self.last = self.first or at, self.last if self.complete else at
        if not isinstance(event, journal.Start | journal.End | journal.Verdict):
            self.story.append((at, event))
        match event:
            case journal.Start():
                slot, worker = sys.intern(str(event.slot)), sys.intern(str(event.worker))  # once for all
                attempt = AttemptRecord(event.attempt, event.device, worker, event.warm, at, slot=slot)
                self.items[event.item].attempts.append(attempt)
                self.running[slot] = event.item, attempt
            case journal.Withdrawn():
                self.items[event.item].attempts.pop()
                self.running.pop(event.slot, None)
            case journal.End():
                self._end(event, at)
            case journal.Verdict():
                self.items[event.item].settle(event)
            case messages.WorkerUp():
                self._slot(event.slot).workers += 1
            case journal.Preparing():
                self._prepare(event)
            case journal.Collecting():
                self.collecting = event.node
            case journal.CollectionFault():
                self.fatal.append(event)
                self.collecting = ""
            case journal.Run():
                slots = {slot: SlotRecord(device) for slot, device in event.slots.items()}
                begun = RunRecord(run=event, slots=slots, fatal=self.fatal, story=self.story)
                begun.first, begun.last = self.first, at
                self._forget(begun)
            case journal.Planned():
                self.items = [ItemRecord(nodeid) for nodeid in event.items]
                self.planned = True
            case journal.Known():
                for number, reason in event.muted.items():
                    self.items[int(number)].known = reason
                self.expired = list(event.expired)
            case journal.Stopped():
                self.stopped = event
            case journal.Over():
                self.complete, self.status = True, event.status
            case journal.Quarantine():
                self.quarantines.append(event)
                self.notes.append(f"device {event.device} is quarantined: {event.why}")
            case journal.AgentDied():
                self.notes.append(f"the agent died ({event.why}); its workers were ended")
            case journal.Note():
                self.notes.append(event.text)
            case messages.Healed():
                self.notes.append(f"{self.items[event.item].nodeid}: {event.what}")
            case messages.WorkerEnded():
                self.notes += [f"worker {event.worker}: {event.why}"] if event.late else []
            case messages.NodeUp() | messages.NodeLost() | messages.NodeNotice() | messages.NodeOut():
                self._hear_of_node(event)
            case messages.NodeNote():
                self.notes.append(f"node {event.node}: {event.text}")
            case messages.NodeRoom():
                self.rooms.append(event)
            case messages.AllocationEnding():
                self.notes.append(event.why)
            case messages.EngineWaits():
                self.engine = event.engine
                self.waiting[event.engine] = event.what
            case messages.NodeWaits():
                self.waiting.pop(self.engine, None)
                self.waiting[event.node] = event.what
            case journal.Late() | messages.StartFailed() | messages.Probed() | messages.AllocationOver():
                pass  # evidence, for who reads the journal itself
            case _:
                never(event)

    def _forget(self, new: RunRecord) -> None:
        vars(self).update(vars(new))

    def _end(self, event: journal.End, at: float) -> None:
        attempt = self.items[event.item].attempts[-1]
        attempt.end(event, at)
        self.running.pop(attempt.slot, None)
        self._slot(attempt.slot).done += 1

    def _slot(self, name: str) -> SlotRecord:
        """Several devices at once, and preparations, have slots that nobody announced."""
        return self.slots.setdefault(name, SlotRecord(""))

    def _prepare(self, event: journal.Preparing) -> None:
        if event.item is not None:
            self.preparing[event.slot] = event.item
        elif self.preparing.pop(event.slot, None) is not None:
            self._slot(event.slot).done += 1

    def _hear_of_node(self, event: NodeStory) -> None:
        self.nodes.append(event)
        if isinstance(event, messages.NodeUp):
            for device, slots in event.slots.items():
                for slot in slots:
                    self.slots.setdefault(slot, SlotRecord(device))
        else:
            self.notes.append(f"node {event.node} {NODE_WORDS[type(event)]}: {event.why}")
        if not isinstance(event, messages.NodeLost | messages.NodeNotice):
            self.waiting.pop(event.node, None)


NODE_WORDS: dict[type, str] = {
    messages.NodeLost: "was lost",
    messages.NodeNotice: "is being taken away",
    messages.NodeOut: "is left out",
}


class Book(journal.Journal):
    """The journal of this run, and what it adds up to: an event is written first and believed then."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.record = RunRecord()
        for at, event in journal.events(path):
            self.record.apply(event, at)

    def write(self, *events: journal.Event) -> float:
        at = super().write(*events)
        for event in events:
            self.record.apply(event, at)
        return at


def load(path: Path) -> RunRecord:
    """Read a journal, whole or cut off."""
    try:
        record = added_up(journal.events(path))
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}", because=str(error))
    if not record.first:
        raise UsageError(f"{path} is not a journal of a run", hint="ondol report FILE, as named in the run's summary")
    return record


def added_up(events: Iterable[tuple[float, journal.Event]]) -> RunRecord:
    """With a verdict for what the journal has none for: only a run that was cut off leaves such items."""
    record = RunRecord()
    for at, event in events:
        record.apply(event, at)
    for item in record.items:
        if item.verdict:
            continue
        if not item.attempts:
            item.verdict, item.why = Verdict.NOT_RUN.value, "the run ended before it was reached"
        elif not item.attempts[-1].outcome:
            item.attempts[-1].outcome = item.verdict = Verdict.CRASHED.value
            item.attempts[-1].reason = item.why = "the run was killed while this item ran"
        else:
            # Its attempt had ended and it was about to be tried again.
            item.verdict, item.why = item.attempts[-1].outcome, item.attempts[-1].reason
    return record
