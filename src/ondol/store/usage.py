"""Which entries were useful and when, so that cleaning can drop the least useful first.

Readers own no pack and may not touch its times, so each UID keeps notes in its own lane: one small file per day, one
address a line. Two jobs of one UID that write at once may lose each other's line; the notes are hints and nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice

from ondol.host import files
from ondol.store import lane as lanes_of
from ondol.store import stats
from ondol.store.entry import Address
from ondol.words import is_plain_name

_DAY = 86400
#: A day's notes of a user of a hundred thousand entries are 11 MiB.
_MAX_BYTES = 16 << 20
#: What is read of one lane at most, the newest first: notes are hints, and a lane's owner can write what he likes.
_MAX_LANE_BYTES = 64 << 20
_MAX_NOTES = 500_000
#: Begins the name of the file that tells what a job of some name used.
_JOB = "job-"
_MAX_JOBS = 1000
#: Notes older than this are forgotten when new ones are written.
KEPT_DAYS = 90


def note(lane: lanes_of.Lane, addresses: Iterable[Address], now: float) -> None:
    folder = lane.make_folder(lanes_of.USAGE)
    today = str(int(now // _DAY))
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
        if name.startswith((_JOB, stats.PREFIX)):
            try:
                ages.append((now - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))
            except OSError:
                continue  # another cleaner has it
    return [name for age, name in sorted(ages)[:_MAX_JOBS] if age < KEPT_DAYS * _DAY]


def read(lane: lanes_of.Lane, now: float) -> Iterator[tuple[Address, float]]:
    """(address, seconds since the epoch) of each note in a lane; unreadable notes are skipped."""
    return islice(_notes(lane, now), _MAX_NOTES)


def _notes(lane: lanes_of.Lane, now: float) -> Iterator[tuple[Address, float]]:
    left = _MAX_LANE_BYTES
    for name in _current(lane.names(lanes_of.USAGE), now):
        for line in _lines(lane.folder(lanes_of.USAGE), name, min(left, _MAX_BYTES)):
            left -= len(line) + 1
            for address in _parsed(line):
                yield address, float(int(name) * _DAY)


def _parsed(line: str) -> list[Address]:
    """The address in a line; none if there is no such thing in it."""
    parts = line.split("/")
    return [Address(*parts)] if len(parts) == 4 and all(map(is_plain_name, parts)) else []


def _current(names: Iterable[str], now: float) -> list[str]:
    """The files of days that count, the newest first. A day that has not come would keep its entries for ever."""
    today = int(now // _DAY)
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
