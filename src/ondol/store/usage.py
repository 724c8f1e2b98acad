"""What jobs note in their lanes, `usage/…`: hints, and nothing else. A lane's owner can write what he likes, so that
everything which is read is bounded.

<day>          which entries were useful that day, an address a line, so that cleaning can drop the least useful first:
               readers own no pack and may not touch its times. Of two jobs of one UID that write at once, one may lose
               its lines.
job-<name>     what a job of this name used the last time, an address a line
stats-<32 hex> hits, misses, bytes and time saved, a row for each day, scope and tool: for people. Each job leaves one,
               whole and never changed. Where many have gathered, the next job adds them up in its own: who removes a
               note counts it, so nothing is counted twice.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice

from ondol.foreign_text import is_number, is_plain_name
from ondol.host import files
from ondol.store import lane as lanes_of
from ondol.store.api import Stat
from ondol.store.entry import Address

DAY = 86400
#: A day's notes of a user of a hundred thousand entries are 11 MiB.
_MAX_BYTES = 16 << 20
#: What is read of one lane at most, the newest first.
_MAX_LANE_BYTES = 64 << 20
_MAX_LINES = 500_000
#: Begins the name of the file that tells what a job of some name used.
_JOB = "job-"
_MAX_JOBS = 1000
#: Notes older than this are forgotten when new ones are written; and days older than this are not told of.
KEPT_DAYS, TOLD_DAYS = 90, 30
STATS = "stats-"
#: Reports that are added up in one; and what is looked at in one lane: names, reports, rows, bytes of a report.
MANY = 64
_NAMES, REPORTS, ROWS, _REPORT_BYTES = 20_000, 256, 2_000, 512 << 10
LARGEST = 10**15


def note(lane: lanes_of.Lane, addresses: Iterable[Address], now: float) -> None:
    folder = lane.make_folder(lanes_of.USAGE)
    today = str(int(now // DAY))
    lines = {"/".join(address) for address in addresses}
    known = set(_lines(folder, today, _MAX_BYTES))
    if not lines <= known:
        files.write_whole(today, "\n".join(sorted(lines | known)).encode(), 0o644, folder)
        forget(lane, now)


def note_job(lane: lanes_of.Lane, job: str, addresses: Iterable[Address]) -> None:
    """What a job of this name used, instead of what it used the last time."""
    lines = sorted("/".join(address) for address in addresses)
    files.write_whole(_JOB + job, "\n".join(lines).encode(), 0o644, lane.make_folder(lanes_of.USAGE))


def of_job(lane: lanes_of.Lane, job: str) -> Iterator[Address]:
    if _JOB + job in lane.names(lanes_of.USAGE):
        for line in _lines(lane.folder(lanes_of.USAGE), _JOB + job, _MAX_BYTES):
            yield from _parsed(line)


def forget(lane: lanes_of.Lane, now: float) -> None:
    """Remove notes that no reader looks at any more, or that are dated ahead."""
    names = lane.names(lanes_of.USAGE)
    if not names:
        return
    folder = lane.folder(lanes_of.USAGE)
    current = {*_current(names, now), *_current_jobs(folder, names, now)}
    for name in names:
        if name not in current and not name.startswith("."):  # those are being written
            files.unlink_quietly(name, dir_fd=folder)


def _current_jobs(folder: int, names: Iterable[str], now: float) -> list[str]:
    """What jobs wrote that may still run; at most so many, the last ones."""
    ages: list[tuple[float, str]] = []
    for name in names:
        if name.startswith((_JOB, STATS)):
            try:
                ages.append((now - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))
            except OSError:
                continue  # another cleaner has it
    return [name for age, name in sorted(ages)[:_MAX_JOBS] if age < KEPT_DAYS * DAY]


def read(lane: lanes_of.Lane, now: float) -> Iterator[tuple[Address, float]]:
    """(address, seconds since the epoch) of each note in a lane; unreadable notes are skipped."""
    noted = islice(_noted(lane, now), _MAX_LINES)  # of any kind: millions of lines that are no notes cost time too
    return ((address, float(day * DAY)) for line, day in noted for address in _parsed(line))


def _noted(lane: lanes_of.Lane, now: float) -> Iterator[tuple[str, int]]:
    left = _MAX_LANE_BYTES
    for name in _current(lane.names(lanes_of.USAGE), now):
        for line in _lines(lane.folder(lanes_of.USAGE), name, min(left, _MAX_BYTES)):
            left -= len(line) + 1
            yield line, int(name)


def _parsed(line: str) -> list[Address]:
    """The address in a line; none if there is no such thing in it."""
    parts = line.split("/")
    return [Address(*parts)] if len(parts) == 4 and all(map(is_plain_name, parts)) else []


def _current(names: Iterable[str], now: float) -> list[str]:
    """The files of days that count, the newest first. A day that has not come would keep its entries for ever."""
    today = int(now // DAY)
    days = range(today + 1, today - KEPT_DAYS - 1, -1)  # one ahead: another host's clock
    there = set(names)
    return [name for name in map(str, days) if name in there]


def _lines(folder: int, name: str, limit: int) -> list[str]:
    try:
        data, _ = files.read_regular(name, limit, dir_fd=folder)
    except OSError as error:
        lanes_of.pass_over(error)
        return []
    return data.decode("utf-8", "replace").split("\n")


# -- what jobs report --------------------------------------------------------------------------------------------------


def note_stats(lane: lanes_of.Lane, rows: Iterable[Stat], now: float) -> None:
    folder = lane.make_folder(lanes_of.USAGE)
    older = _reports(folder)
    if len(older) >= MANY:
        rows = [*rows, *(row for name in older for row in _rows(folder, name, take=True))]
    lines = ["/".join(map(str, row)) for row in add_up(_told(rows, now))[:ROWS]]
    files.write_whole(STATS + files.random_name(), "\n".join(lines).encode(), 0o644, folder)


def read_stats(lane: lanes_of.Lane, now: float) -> list[Stat]:
    """What is in a lane; what makes no sense is skipped."""
    try:
        folder = lane.folder(lanes_of.USAGE)
        rows = (row for name in _reports(folder) for row in _rows(folder, name))
        return list(islice(_told(rows, now), ROWS))
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


def _reports(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        names = (entry.name for entry in islice(entries, _NAMES))
        return list(islice((name for name in names if name.startswith(STATS)), REPORTS))


def _rows(folder: int, name: str, *, take: bool = False) -> list[Stat]:
    """`take`: if it is we who remove it."""
    lines = _lines(folder, name, _REPORT_BYTES)
    if take and not (lines and files.unlink_quietly(name, dir_fd=folder)):
        return []
    return [row for line in lines[:ROWS] for row in _row(line)]


def _row(line: str) -> list[Stat]:
    parts = line.split("/")
    numbers = [min(int(part), LARGEST) for part in (parts[0], *parts[3:]) if is_number(part)]
    if len(parts) != 7 or len(numbers) != 5 or not all(map(is_plain_name, parts[1:3])):
        return []
    return [Stat(numbers[0], parts[1], parts[2], *numbers[1:])]


def _told(rows: Iterable[Stat], now: float) -> Iterator[Stat]:
    """Of days that count; one ahead may be another host's clock."""
    today = int(now // DAY)
    return (row for row in rows if today - TOLD_DAYS < row.day <= today + 1)
