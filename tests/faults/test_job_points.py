"""A whole job, struck at every system call of Ondol's own: the command's result is never touched."""

from __future__ import annotations

import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults import crash_points, job
from faults.crash_points import Ended, Point
from faults.operations import opened
from faults.reader_view import read_all
from faults.states import same_names, state
from ondol.room import room
from ondol.store import check, marker

pytestmark = pytest.mark.fault
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


def job_violations(place: Path, how: str, errors: tuple[int, ...] = (0,), step: int = 1) -> list[str]:
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


def test_job_killed_anywhere_leaves_a_store_that_warms_the_next(fast_place: Path) -> None:
    """Ondol or its helper is killed at any call: the next job works, sweeps the room, and leaves a warm store."""
    assert job_violations(fast_place, "before") == []


def test_error_anywhere_leaves_the_commands_status_alone(fast_place: Path) -> None:
    """Whatever call of ours fails, the command runs, its status is the job's, and the fault is said once."""
    errors = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES)

    assert job_violations(fast_place, "error", errors) == []


@pytest.mark.parametrize(("how", "error"), [("full", errno.ENOSPC), ("gone", errno.ESTALE)], ids=["full", "gone"])
def test_lasting_trouble_leaves_the_commands_status_alone(how: str, error: int, fast_place: Path) -> None:
    """The same when from some call on everything fails: the disks are full, the servers are gone."""
    assert job_violations(fast_place, how, (error,), step=3) == []


def test_command_that_removes_its_cache_keeps_its_status(fast_place: Path) -> None:
    """A command may clear the cache directory it was given; that is no trouble of the job's."""
    marker.create(str(fast_place / "store"), marker.Writers(), shared=True)

    report = job.run(fast_place, ["/bin/sh", "-c", 'rm -rf "$TRITON_CACHE_DIR"; exit 5'])

    assert (report["status"], report["warnings"]) == (5, [])


def test_machine_without_processes_left_still_runs_the_command(
    fast_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no helper can be forked, the job is cold and says so."""
    marker.create(str(fast_place / "store"), marker.Writers(), shared=True)

    def no_fork() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", no_fork)
    report = job.run(fast_place, job.command(fast_place, (1,), status=5))

    assert report["status"] == 5
    filling, looking = report["warnings"]  # each step that needs a helper says once what it could not do
    assert "running cold: no helper process could be started" in filling
    assert "not looked at: no helper process could be started" in looking


def test_room_that_another_job_sweeps_meanwhile_is_no_trouble(
    fast_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one user sweep the same dead room: for the second it is gone between listing and looking."""
    vanished = f"{room.PREFIX}{os.geteuid()}-vanished"
    monkeypatch.setattr(os, "listdir", lambda _path: [vanished])

    assert room.sweep(str(fast_place)) == 0
