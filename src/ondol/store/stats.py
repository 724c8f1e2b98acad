"""What jobs report: hits, misses, bytes and time saved, by day, scope and tool. Hints for people, and nothing else.

Each job leaves one note in its own lane, `usage/stats-<32 hex>`, whole and never changed. Where many have gathered, the
next job adds them up in its own: who removes a note counts it, so nothing is counted twice. Everything is bounded: a
lane's owner can write what he likes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice

from ondol.host import files
from ondol.store import lane as lanes_of
from ondol.store.api import Stat
from ondol.words import is_number, is_plain_name

PREFIX = "stats-"
DAY = 86400
KEPT_DAYS = 30
#: Notes that are added up in one; and what is looked at in one lane: names, notes, rows, bytes of a note.
_MANY = 64
_NAMES, _NOTES, _ROWS, _BYTES = 20_000, 256, 2_000, 512 << 10
_LARGEST = 10**15


def note(lane: lanes_of.Lane, rows: Iterable[Stat], now: float) -> None:
    folder = lane.make_folder(lanes_of.USAGE)
    older = _names(folder)
    if len(older) >= _MANY:
        rows = [*rows, *(row for name in older for row in _read(folder, name, take=True))]
    lines = ["/".join(map(str, row)) for row in add_up(_current(rows, now))[:_ROWS]]
    files.write_whole(PREFIX + files.random_name(), "\n".join(lines).encode(), 0o644, folder)


def read(lane: lanes_of.Lane, now: float) -> list[Stat]:
    """What is in a lane; what makes no sense is skipped."""
    try:
        folder = lane.folder(lanes_of.USAGE)
        rows = (row for name in _names(folder) for row in _read(folder, name))
        return list(islice(_current(rows, now), _ROWS))
    except OSError as error:
        lanes_of.pass_over(error)
        return []


def add_up(rows: Iterable[Stat]) -> list[Stat]:
    """One row for each day, scope and tool; the newest day first."""
    total: dict[tuple[int, str, str], Stat] = {}
    for row in rows:
        known = total.get(row[:3])
        total[row[:3]] = Stat(*row[:3], *(a + b for a, b in zip(known[3:], row[3:], strict=True))) if known else row
    return sorted(total.values(), key=lambda row: (-row.day, row.scope, row.tool))


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        names = (entry.name for entry in islice(entries, _NAMES))
        return list(islice((name for name in names if name.startswith(PREFIX)), _NOTES))


def _read(folder: int, name: str, *, take: bool = False) -> list[Stat]:
    """`take`: if it is we who remove it."""
    try:
        data, _ = files.read_regular(name, _BYTES, dir_fd=folder)
    except OSError as error:
        lanes_of.pass_over(error)
        return []
    if take and not files.unlink_quietly(name, dir_fd=folder):
        return []
    return [row for line in islice(data.decode("utf-8", "replace").split("\n"), _ROWS) for row in _parsed(line)]


def _parsed(line: str) -> list[Stat]:
    parts = line.split("/")
    numbers = [min(int(part), _LARGEST) for part in (parts[0], *parts[3:]) if is_number(part)]
    if len(parts) != 7 or len(numbers) != 5 or not all(map(is_plain_name, parts[1:3])):
        return []
    return [Stat(numbers[0], parts[1], parts[2], *numbers[1:])]


def _current(rows: Iterable[Stat], now: float) -> Iterator[Stat]:
    """Of days that count; one ahead may be another host's clock."""
    today = int(now // DAY)
    return (row for row in rows if today - KEPT_DAYS < row.day <= today + 1)
