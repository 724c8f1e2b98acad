"""Sixteen ranks that start at once on one node: one shared room, against a room for each."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path

from bench import measure
from bench.rows import Row, timed
from bench.synthetic import add_entries, make_store
from ondol.room.room import PREFIX

_RANKS = 16
_ENTRIES = 300
_ROUNDS = 3
_SHARED, _PRIVATE = "one room for all (--share)", "a room for each (--share off)"
#: Says which room it has and waits until all have one: what is measured ends when the last rank could begin.
_COMMAND = 'basename "$ONDOL_ROOM" > "$MEET/$RANK"; until [ "$(ls "$MEET" | wc -l)" -ge %d ]; do sleep 0.02; done'


def run() -> list[Row]:
    """The goal: filled once, and the last rank begins sooner than with rooms of their own."""
    with measure.scratch() as work:
        store = work / "store"
        make_store(store)
        add_entries(store, 0, _ENTRIES)
        opened: dict[str, set[int]] = {_SHARED: set(), _PRIVATE: set()}
        cases = {
            _SHARED: partial(_start_all, store, "bench", opened[_SHARED]),
            _PRIVATE: partial(_start_all, store, "off", opened[_PRIVATE]),
        }
        notes = f"{_RANKS} ranks, {_ENTRIES} entries; rooms opened: "
        rows = timed(measure.interleave(cases, _ROUNDS), _PRIVATE)
        return [row._replace(note=notes + "/".join(map(str, sorted(opened[row.what])))) for row in rows]


def _start_all(store: Path, share: str, opened: set[int]) -> float:
    with measure.scratch() as place:
        meet = place / "meet"
        meet.mkdir()
        options = ("--store", store, "--room-dir", place, "--tools", "triton", "--share", share, "--publish", "never")
        command = measure.ondol("run", "-q", *options, "--", "sh", "-c", _COMMAND % _RANKS)
        started = time.perf_counter()
        ranks = [
            subprocess.Popen(command, env=measure.environment(MEET=str(meet), RANK=str(rank))) for rank in range(_RANKS)
        ]
        statuses = [rank.wait() for rank in ranks]
        if any(statuses):
            raise RuntimeError("a rank failed")
        took = time.perf_counter() - started
        rooms = {path.read_text().strip() for path in meet.iterdir()}
        if not all(room.startswith(PREFIX) for room in rooms):
            raise RuntimeError(f"ranks without a room: {rooms}")
        opened.add(len(rooms))
        return took
