"""A run as its journal tells it, also when the run was killed: what was seen is real, what was in flight is crashed or
interrupted, what was never reached is not-run. Nothing is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ondol.errors import UsageError
from ondol.fleet import journal
from ondol.fleet.messages import never
from ondol.fleet.verdict import Verdict

NodeStory = journal.NodeUp | journal.NodeLost | journal.NodeNotice | journal.NodeOut


@dataclass
class AttemptRecord:
    """One attempt."""

    number: int
    device: str = ""
    worker: str = ""
    warm: bool = False
    started: float = 0.0
    seconds: float = 0.0
    outcome: str = ""
    reason: str = ""
    text: str = ""
    dump: str = ""
    output: dict[str, str] = field(default_factory=dict)
    dirt: Sequence[Sequence[str]] = ()

    def end(self, event: journal.End, at: float) -> None:
        self.outcome, self.reason, self.text, self.dump = event.outcome, event.reason, event.text, event.dump
        # What was cut off has no measured phases: then it is the time that passed.
        self.seconds = event.seconds or max(0.0, at - self.started)
        self.output, self.dirt = event.output, event.dirt


@dataclass
class ItemRecord:
    """One planned item and its one verdict."""

    nodeid: str
    attempts: list[AttemptRecord] = field(default_factory=list)
    verdict: str = ""
    flaky: bool = False
    why: str = ""

    def settle(self, event: journal.Verdict) -> None:
        self.verdict, self.flaky, self.why = event.verdict, event.flaky, event.why


@dataclass
class RunRecord:
    """Everything that is known about a run: what the journal says, and nothing else."""

    items: list[ItemRecord] = field(default_factory=list)
    run: journal.Run = field(default_factory=journal.Run)
    quarantines: list[journal.Quarantine] = field(default_factory=list)
    #: Nodes that came, were lost or were left out, in order.
    nodes: list[NodeStory] = field(default_factory=list)
    #: What the rooms of nodes had to say.
    rooms: list[journal.Room] = field(default_factory=list)
    #: Files that ended the process that collected them.
    fatal: list[journal.CollectionFault] = field(default_factory=list)
    #: The file that is being collected.
    collecting: str = ""
    planned: bool = False
    #: The controller wrote its last line.
    complete: bool = False
    status: int | None = None
    first: float = 0.0
    last: float = 0.0

    def counts(self) -> dict[str, int]:
        found = {verdict.value: 0 for verdict in Verdict}
        for item in self.items:
            found[item.verdict] += 1
        return {name: number for name, number in found.items() if number}

    @property
    def bad(self) -> bool:
        return bool(self.fatal) or any(Verdict(item.verdict).bad for item in self.items)

    def apply(self, event: journal.Event, at: float) -> None:  # noqa: C901 - one line per event
        """Take in one event, in the order in which they were written."""
        self.first, self.last = self.first or at, at
        match event:
            case journal.Collecting():
                self.collecting = event.node
            case journal.CollectionFault():
                self.fatal.append(event)
                self.collecting = ""
            case journal.Run():
                self.run, self.complete, self.status = event, False, None
            case journal.Planned():
                self.items = [ItemRecord(nodeid) for nodeid in event.items]
                self.planned = True
            case journal.Start():
                self.items[event.item].attempts.append(
                    AttemptRecord(event.attempt, event.device, event.worker, event.warm, at)
                )
            case journal.End():
                self.items[event.item].attempts[-1].end(event, at)
            case journal.Verdict():
                self.items[event.item].settle(event)
            case journal.Quarantine():
                self.quarantines.append(event)
            case journal.NodeUp() | journal.NodeLost() | journal.NodeNotice() | journal.NodeOut():
                self.nodes.append(event)
            case journal.Room():
                self.rooms.append(event)
            case journal.Over():
                self.complete, self.status = True, event.status
            case journal.Late() | journal.Healed() | journal.Worker() | journal.WorkerEnded() | journal.StartFailed():
                pass  # evidence, for who reads the journal itself
            case journal.AgentDied() | journal.Probe() | journal.EngineWaits() | journal.NodeWaits():
                pass
            case journal.NodeNote() | journal.AllocationOver():
                pass
            case _:
                never(event)


def load(path: Path) -> RunRecord:
    """Read a journal, whole or cut off."""
    record = RunRecord()
    try:
        for at, event in journal.events(path):
            record.apply(event, at)
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}", because=str(error))
    if not record.first:
        raise UsageError(f"{path} is not a journal of a run", hint="ondol report FILE, as named in the run's summary")
    _account(record)
    return record


def _account(record: RunRecord) -> None:
    """Give a verdict to what the journal has none for: only a run that was cut off leaves such items."""
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
