"""A whole job, struck at every system call of Ondol's own: the command's result is never touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from faults import job, lean
from ondol.room import room
from ondol.store import marker

pytestmark = pytest.mark.fault


def test_job_killed_anywhere_leaves_a_store_that_warms_the_next(fast_place: Path) -> None:
    """Ondol or its helper is killed at any call: the next job works, sweeps the room, and leaves a warm store."""
    assert lean.job_violations(fast_place, "before") == []


def test_error_anywhere_leaves_the_commands_status_alone(fast_place: Path) -> None:
    """Whatever call of ours fails, the command runs, its status is the job's, and the fault is said once."""
    errors = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES)

    assert lean.job_violations(fast_place, "error", errors) == []


@pytest.mark.parametrize(("how", "error"), [("full", errno.ENOSPC), ("gone", errno.ESTALE)], ids=["full", "gone"])
def test_lasting_trouble_leaves_the_commands_status_alone(how: str, error: int, fast_place: Path) -> None:
    """The same when from some call on everything fails: the disks are full, the servers are gone."""
    assert lean.job_violations(fast_place, how, (error,), step=3) == []


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
    assert "could not be looked at: no helper process could be started" in looking


def test_room_that_another_job_sweeps_meanwhile_is_no_trouble(
    fast_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one user sweep the same dead room: for the second it is gone between listing and looking."""
    vanished = f"{room.PREFIX}{os.geteuid()}-vanished"
    monkeypatch.setattr(os, "listdir", lambda _path: [vanished])

    assert room.sweep(str(fast_place)) == 0
