"""What the terminal says about a run after pytest's own summary: only what pytest has no words for."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Any

from ondol.fleet.model import EXIT_CODE, TASK_SUFFIX
from ondol.fleet.record import ItemRecord, RunRecord
from ondol.fleet.verdict import Verdict
from ondol.foreign_text import alike, printable
from ondol.report import table

SHOWN, CAUSES, LEFTOVERS = 20, 5, 3


def lines(record: RunRecord, journal: Path) -> list[str]:
    found = [f"workers: {sum(slot.workers for slot in record.slots.values())}, {record.run.mode}"]
    for room in sorted(record.rooms, key=lambda room: room.node):
        found += [f"{room.node}: {line.removeprefix('ondol: ')}" for line in room.lines]
    found += [f"quarantined: {one.device}: {one.why}" for one in record.quarantines]
    found += _some("flaky", [item for item in record.items if item.flaky])
    found += _some("known", [item for item in record.items if item.muted], lambda item: item.known)
    found += [f"error: {text}" for text in record.expired]
    found += _left_behind(record)
    for verdict in (Verdict.DEVICE_LOST, Verdict.NOT_RUN):
        found += _some(verdict.value, [item for item in record.items if item.verdict == verdict.value])
    found += [f"note: {text}" for text in record.notes]
    counted = sum(1 for item in record.items if item.verdict)
    if counted != len(record.items):
        found.append(f"error: {len(record.items)} items were planned and {counted} have a verdict")
    bad = ((item.verdict, item.nodeid, item.why) for item in record.items if item.bad)
    found += _alike(bad, CAUSES, "failed: for {} more reasons")
    found.append(f"journal: {journal} (`ondol report` renders it)")
    if any(item.failed or item.flaky for item in record.items) or record.unknown:
        found.append(f"again: ondol test --rerun {quote(str(journal))}")
    return found


def _left_behind(record: RunRecord) -> list[str]:
    """A few of each kind: a suite that opens files and leaves them to the collector has hundreds of descriptors, and
    the one thread among them must be seen.
    """
    kinds: dict[str, list[tuple[str, str, str]]] = {}
    for item in record.items:
        for attempt in item.attempts:
            for kind, what in attempt.dirt:
                kinds.setdefault(kind, []).append(("left behind", item.nodeid, f"{kind}: {what}"))
    found = []
    for kind, these in kinds.items():
        found += _alike(these, LEFTOVERS, f"left behind: and {{}} more like these ({kind}; the report lists them)")
    return found


def _alike(found: Iterable[tuple[str, str, str]], most: int, rest: str) -> list[str]:
    """(word, node id, what): what is the same of many items is one line, the most first."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for word, nodeid, what in found:
        groups.setdefault((word, alike(what)), {}).setdefault(nodeid, what)
    lines = []
    for (word, _), same in sorted(groups.items(), key=lambda one: -len(one[1])):
        nodeid, what = next(iter(same.items()))
        lines.append(f"{word}: {nodeid}{f' and {len(same) - 1} more' if len(same) > 1 else ''} ({what})")
    return lines[:most] + ([rest.format(len(lines) - most)] if len(lines) > most else [])


def _some(word: str, items: list[ItemRecord], why: Callable[[ItemRecord], str] = attrgetter("why")) -> list[str]:
    found = [f"{word}: {item.nodeid} ({why(item)})" for item in items[:SHOWN]]
    return found + ([f"{word}: and {len(items) - SHOWN} more"] if len(items) > SHOWN else [])


def write(terminal: Any, record: RunRecord, journal: Path) -> None:
    if any(TASK_SUFFIX in item.nodeid for item in record.items):
        terminal.section("tasks", sep="-")
        for line in tasks(record):
            terminal.line(printable(line))
    terminal.section("ondol", sep="-")
    for line in lines(record, journal):
        terminal.line(printable(line))


def tasks(record: RunRecord) -> list[str]:
    """What became of each task, where, after how many attempts, in which time."""
    found = [item for item in record.items if item.nodeid.split("::")[0].endswith(TASK_SUFFIX)]
    return table.lines(("task", "verdict", "device", "attempts", "seconds", "exit code"), [*map(_task, found)])


def _task(item: ItemRecord) -> tuple[str, ...]:
    device = item.attempts[-1].device if item.attempts else ""
    seconds = sum(attempt.seconds for attempt in item.attempts)
    last = item.attempts[-1].phases if item.attempts else ()
    noted = [pair for phase in last for pair in phase.get("user_properties", ())]
    code = next((str(value) for name, value in noted if name == EXIT_CODE), "")
    verdict = f"{item.verdict} (flaky)" if item.flaky else item.verdict
    return item.nodeid, verdict, device or "-", str(len(item.attempts)), f"{seconds:.2f}", code
