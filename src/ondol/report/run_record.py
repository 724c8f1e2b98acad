"""A run as its journal tells it, also when the run was killed: what was seen is real, what was in flight is crashed or
interrupted, what was never reached is not-run. Nothing is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ondol.errors import UsageError
from ondol.fleet.journal import Event, read
from ondol.fleet.verdict import Verdict


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
    dirt: list[list[str]] = field(default_factory=list)


@dataclass
class ItemRecord:
    """One planned item and its one verdict."""

    nodeid: str
    attempts: list[AttemptRecord] = field(default_factory=list)
    verdict: str = ""
    flaky: bool = False
    why: str = ""


@dataclass
class RunRecord:
    """Everything that a report can say."""

    items: list[ItemRecord] = field(default_factory=list)
    run: Event = field(default_factory=dict)
    quarantines: list[Event] = field(default_factory=list)
    probes: list[Event] = field(default_factory=list)
    workers: list[Event] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    #: Nodes that came, were lost or were left out, in order.
    nodes: list[Event] = field(default_factory=list)
    #: What the rooms of nodes had to say.
    rooms: list[Event] = field(default_factory=list)
    #: Files that ended the process that collected them.
    fatal: list[Event] = field(default_factory=list)
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


def load(path: Path) -> RunRecord:
    """Read a journal, whole or cut off."""
    record = RunRecord()
    try:
        events = list(read(path))
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}", because=str(error))
    if not events:
        raise UsageError(f"{path} is not a journal of a run", hint="ondol report FILE, as named in the run's summary")
    for event in events:
        record.first = record.first or event["t"]
        record.last = event["t"]
        reader = _READERS.get(event["e"])
        if reader is not None:
            reader(record, event)
    _account(record)
    return record


def _run(record: RunRecord, event: Event) -> None:
    record.run = event


def _collecting(record: RunRecord, event: Event) -> None:
    record.collecting = event["node"]


def _planned(record: RunRecord, event: Event) -> None:
    record.items = [ItemRecord(nodeid) for nodeid in event["items"]]
    record.planned = True


def _start(record: RunRecord, event: Event) -> None:
    attempt = AttemptRecord(event["attempt"], event["device"], event["worker"], event["warm"], event["t"])
    record.items[event["item"]].attempts.append(attempt)


def _end(record: RunRecord, event: Event) -> None:
    attempt = record.items[event["item"]].attempts[-1]
    attempt.outcome = event["outcome"]
    attempt.reason = event["reason"]
    attempt.seconds = event["seconds"] or max(0.0, event["t"] - attempt.started)
    attempt.text = event.get("text", "")
    attempt.dump = event.get("dump", "")
    attempt.output = event.get("output") or {}
    attempt.dirt = event.get("dirt", [])


def _verdict(record: RunRecord, event: Event) -> None:
    item = record.items[event["item"]]
    item.verdict, item.flaky, item.why = event["verdict"], event["flaky"], event["why"]


def _over(record: RunRecord, event: Event) -> None:
    record.complete = True
    record.status = event["status"]


_READERS: dict[str, Any] = {
    "run": _run,
    "collecting": _collecting,
    "planned": _planned,
    "start": _start,
    "end": _end,
    "verdict": _verdict,
    "over": _over,
    "quarantine": lambda record, event: record.quarantines.append(event),
    "node-up": lambda record, event: record.nodes.append(event),
    "node-lost": lambda record, event: record.nodes.append(event),
    "node-notice": lambda record, event: record.nodes.append(event),
    "node-out": lambda record, event: record.nodes.append(event),
    "room": lambda record, event: record.rooms.append(event),
    "probe": lambda record, event: record.probes.append(event),
    "worker-ended": lambda record, event: record.workers.append(event),
    "collection-fault": lambda record, event: record.fatal.append(event),
    "late": lambda record, event: record.late.append(event),
}


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
