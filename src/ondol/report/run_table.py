"""The tasks of a run as a table: what became of each, where, after how many attempts, in which time."""

from __future__ import annotations

from ondol.fleet.model import EXIT_CODE, TASK_SUFFIX
from ondol.fleet.record import ItemRecord, RunRecord
from ondol.words import printable

_HEAD = ("task", "verdict", "device", "attempts", "seconds", "exit code")


def lines(record: RunRecord) -> list[str]:
    rows = [_HEAD, *(_row(item) for item in record.items if item.nodeid.split("::")[0].endswith(TASK_SUFFIX))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(item: ItemRecord) -> tuple[str, str, str, str, str, str]:
    device = item.attempts[-1].device if item.attempts else ""
    seconds = sum(attempt.seconds for attempt in item.attempts)
    last = item.attempts[-1].phases if item.attempts else ()
    noted = [pair for phase in last for pair in phase.get("user_properties", ())]
    code = next((str(value) for name, value in noted if name == EXIT_CODE), "")
    verdict = f"{item.verdict} (flaky)" if item.flaky else item.verdict
    return printable(item.nodeid), verdict, device or "-", str(len(item.attempts)), f"{seconds:.2f}", code
