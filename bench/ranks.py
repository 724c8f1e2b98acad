"""Sixteen ranks that start at once on one node: one shared room, a room for each, and `cp -a` of the cache for each."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path
from statistics import median

from bench import measure
from bench.rows import Row, timed
from bench.synthetic import add_entries, make_store
from ondol.room.room import PREFIX

_RANKS = 16
_ENTRIES = 300
_ROUNDS = 3
_SHARED, _PRIVATE = "one room for all (--share)", "a room for each (--share off)"
_COPIED = "cp -a and rm -rf of the cache by each, without Ondol"
#: Says which room it has and waits until all have one: nobody is over before the last rank could begin.
_COMMAND = 'basename "$ONDOL_ROOM" > "$MEET/$RANK"; until [ "$(ls "$MEET" | wc -l)" -ge %d ]; do sleep 0.02; done'
#: What people do without Ondol: a copy for each, so that ranks do not get in each other's way. Nothing is verified.
_BY_HAND = """
export ONDOL_ROOM="$PLACE/%s$RANK"; mkdir "$ONDOL_ROOM"; cp -a "$RAW" "$ONDOL_ROOM/cache"
%s
rm -rf "$ONDOL_ROOM"
"""


def run() -> list[Row]:
    """The goal: filled once, and the last rank begins sooner than with rooms of their own."""
    with measure.scratch() as work:
        store = work / "store"
        make_store(store)
        add_entries(store, 0, _ENTRIES)
        raw = _raw_cache(store, work)
        opened: dict[str, set[int]] = {_SHARED: set(), _PRIVATE: set(), _COPIED: set()}
        cases = {
            _SHARED: partial(_start_all, _in_a_room(store, "bench"), raw, opened[_SHARED]),
            _PRIVATE: partial(_start_all, _in_a_room(store, "off"), raw, opened[_PRIVATE]),
            _COPIED: partial(_start_all, ["sh", "-c", _BY_HAND % (PREFIX, _COMMAND % _RANKS)], raw, opened[_COPIED]),
        }
        samples = measure.interleave(cases, _ROUNDS)
        rows = timed(samples, _COPIED)
        shares = f"; {median(samples[_SHARED]) / median(samples[_PRIVATE]):.2f} x of a room for each"
        return [row._replace(note=_note(opened[row.what]) + (shares if row.what == _SHARED else "")) for row in rows]


def _note(opened: set[int]) -> str:
    return f"{_RANKS} ranks, {_ENTRIES} entries; directories: {'/'.join(map(str, sorted(opened)))}"


def _in_a_room(store: Path, share: str) -> list[str]:
    options = ("--store", store, "--tools", "triton", "--share", share, "--publish", "never")
    return measure.ondol("run", "-q", *options, "--", "sh", "-c", _COMMAND % _RANKS)


def _raw_cache(store: Path, work: Path) -> Path:
    """The same entries, as Triton has them."""
    raw = work / "raw"
    copy = ("sh", "-c", 'cp -a "$TRITON_CACHE_DIR" "$0"', raw)
    options = ("--store", store, "--room-dir", work, "--tools", "triton", "--publish", "never")
    measure.wall(measure.ondol("run", "-q", *options, "--", *copy), measure.environment())
    if len(list(raw.iterdir())) != _ENTRIES:
        raise RuntimeError("the room was not filled")
    return raw


def _start_all(command: list[str], raw: Path, opened: set[int]) -> float:
    with measure.scratch() as place:
        meet = place / "meet"
        meet.mkdir()
        where = {"MEET": str(meet), "PLACE": str(place), "RAW": str(raw), "ONDOL_ROOM_DIR": str(place)}
        started = time.perf_counter()
        ranks = [subprocess.Popen(command, env=measure.environment(RANK=str(rank), **where)) for rank in range(_RANKS)]
        statuses = [rank.wait() for rank in ranks]
        if any(statuses):
            raise RuntimeError("a rank failed")
        took = time.perf_counter() - started
        rooms = {path.read_text().strip() for path in meet.iterdir()}
        if not all(room.startswith(PREFIX) for room in rooms):
            raise RuntimeError(f"ranks without a room: {rooms}")
        opened.add(len(rooms))
        return took
