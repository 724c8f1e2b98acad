"""A whole job, struck at every system call of Ondol's own: the command's result is never touched."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from faults import crash_points, job
from faults.crash_points import Point
from faults.operations import opened
from faults.reader_view import read_all
from ondol.room import room
from ondol.store import check, marker

pytestmark = pytest.mark.fault
OLD, NEW = (1, 2), (1, 2, 3)


def _prepare(place: Path) -> None:
    """A store with two entries; the job will use them and make a third."""
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
    later = crash_points.run(lambda: job.run(place, job.command(place, NEW))).value
    if not isinstance(later, dict) or later["status"] or later["warnings"]:
        return [*found, f"a later job is in trouble: {later}"]
    with opened(place) as store:
        seen, refused = read_all(store)
    if refused or len(seen) != len(NEW):
        found.append(f"the job after it will be cold: {len(seen)} entries, {refused}")
    return found + [f"room {name} was left behind" for name in job.rooms_left(place)]


def _strike(place: Path, point: Point) -> tuple[str, list[str]]:
    here = _fresh(place)
    ended = crash_points.run(lambda: job.run(here, job.command(here, NEW)), point)
    found = []
    if ended.how == crash_points.CRASHED:
        found.append(f"the job died of it: {ended.value}")
    elif ended.how == crash_points.FINISHED:
        # Two warnings only where two things failed: the room's disk and the store's.
        allowed = 2 if point.how in ("full", "gone") else 1
        if ended.value["status"] != 0:
            found.append(f"the status is {ended.value['status']}, not the command's")
        if len(ended.value["warnings"]) > allowed:
            found.append(f"more warnings than faults: {ended.value['warnings']}")
    if ended.struck:
        found += _violations_after(here)
    return ended.struck, [f"{point}, {ended.struck}: {text}" for text in found]


def job_violations(place: Path, how: str, errors: tuple[int, ...] = (0,), step: int = 1) -> list[str]:
    """Strike every call (or each `step`-th), with the errors in turn."""
    _prepare(place)
    found: list[str] = []
    for number in range(1, 2000, step):
        struck, new = _strike(place, Point(how, number, errors[number % len(errors)]))
        found += new
        if not struck:
            return found
    raise AssertionError("the job never ends")


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
