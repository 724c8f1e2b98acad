"""Strikes a whole job at every call that Ondol makes in it, and collects what that broke."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from faults import crash_points, job
from faults.crash_points import Ended, Point
from faults.operations import opened
from faults.reader_view import read_all
from faults.states import same_names, state
from ondol.store import check, marker

OLD, NEW = (1,), (1, 2)


def _prepare(place: Path) -> None:
    """A store with an entry; the job will use it and make a second."""
    (place / "place").mkdir()
    marker.create(str(place / "place" / "store"), marker.Writers(), shared=True)
    job.run(place / "place", job.command(place / "place", OLD))
    os.rename(place / "place", place / "before")


def _fresh(place: Path) -> Path:
    shutil.rmtree(place / "place", ignore_errors=True)
    shutil.copytree(place / "before", place / "place")
    return place / "place"


def _violations_after(place: Path) -> list[str]:
    """The store verifies, a later job works, no room stays behind, and the store then holds all there is."""
    with opened(place) as store:
        findings = check.verify(store, lambda _done, _total: None, keep=True).findings
    found = [f"{finding.kind}: {finding.why}" for finding in findings]
    later = job.run(place, job.command(place, NEW))
    if later["status"] or later["warnings"]:
        return [*found, f"a later job is in trouble: {later}"]
    with opened(place) as store:
        seen, refused = read_all(store)
    if refused or len(seen) != len(NEW):
        found.append(f"the job after it will be cold: {len(seen)} entries, {refused}")
    return found + [f"room {name} was left behind" for name in job.rooms_left(place)]


def _struck_violations(ended: Ended, point: Point) -> list[str]:
    if ended.how == crash_points.CRASHED:
        return [f"the job died of it: {ended.value}"]
    if ended.how != crash_points.FINISHED:
        return []
    # Two warnings only where two things failed: the room's disk and the store's.
    allowed, warnings = 2 if point.how in ("full", "gone") else 1, ended.value["warnings"]
    found = [f"the status is {ended.value['status']}, not the command's"] if ended.value["status"] else []
    return found + ([f"more warnings than faults: {warnings}"] if len(warnings) > allowed else [])


def job_violations(place: Path, how: str, errors: Sequence[int] = (0,), step: int = 1) -> list[str]:
    """Strike every call (or each `step`-th), with the errors in turn; look at each state that is left once."""
    _prepare(place)
    known: dict[bytes, list[str]] = {}
    found: list[str] = []
    for number in range(1, 2000, step):
        here, point = _fresh(place), Point(how, number, errors[number % len(errors)])
        ended = crash_points.run(partial(_run_with_same_names, here), point)
        texts = _struck_violations(ended, point)
        left = state(str(here))
        if left not in known:
            known[left] = _violations_after(here)
        found += [f"{point}, {ended.struck}: {text}" for text in texts + known[left]]
        if not ended.struck:
            return found
    raise AssertionError("the job never ends")


def _run_with_same_names(place: Path) -> dict[str, Any]:
    with same_names():
        return job.run(place, job.command(place, NEW))
