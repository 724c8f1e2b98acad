"""Sixteen real jobs at once on one store, of several users, many of them killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from faults.job import is_signed
from people import Program

pytestmark = pytest.mark.fault
KERNELS = tuple(f"kernel_{number}" for number in range(8))
#: Two writers that the store names, root, and one whom nobody named. Only root has a passwd entry.
USERS: tuple[int | None, ...] = (12001, 12002, None, 12003) if os.geteuid() == 0 else (None,)
#: Most jobs are one user's, as on a CI host: only they meet in one lane and sweep each other's rooms.
WEIGHTS = (5, 1, 1, 1)[: len(USERS)]
ROUNDS, AT_ONCE = 3, 16


class Crowd:
    def __init__(self, program: Program, base: Path) -> None:
        self.program, self.store, self.rooms = program, base / "store", base / "rooms"
        self.rooms.mkdir()
        self.rooms.chmod(0o1777)
        made = program.ondol("store", "init", str(self.store), "--writers", "12001,12002")
        assert made.returncode == 0, made.stderr

    def start(self, user: int | None, kernels: list[str], alive: int) -> subprocess.Popen[str]:
        options = [
            "--store",
            str(self.store),
            "--tools",
            "triton",
            "--room-dir",
            str(self.rooms),
            "--publish=on-success",
        ]
        command = [self.program.python, str(self.program.programs / "standin.py")]
        return subprocess.Popen(
            [self.program.python, "-m", "ondol", "run", *options, "--", *command, *kernels],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env=self.program.env(),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            start_new_session=True,
            pass_fds=[alive],
        )

    def job(self, user: int | None, *options: str) -> dict[str, object]:
        """A job over all kernels, undisturbed: what the stand-in and the report say."""
        done = self.program.job(
            self.store, *KERNELS, uid=user, options=("--room-dir", str(self.rooms), "--publish=on-success", *options)
        )
        assert done.status == 0, done
        assert not done.warnings, done
        return done.said

    def rooms_left(self) -> list[Path]:
        return sorted(self.rooms.glob("ondol-room-*"))


def told(path: Path) -> list[str]:
    """What is in a room, with whose it is and how old: for whoever reads the failure."""
    found = [path, *path.rglob("*")]
    return [f"{one.relative_to(path)} {one.lstat().st_uid} {time.time() - one.lstat().st_mtime:.1f} s" for one in found]


@pytest.fixture
def crowd(program: Program, public: Path, tmp_path: Path) -> Crowd:
    base = public / tmp_path.name
    base.mkdir()
    return Crowd(program, base)


def _one_round(crowd: Crowd, dice: random.Random) -> tuple[int, list[str]]:
    """(killed, what was wrong). Returns when no process of the round is left, orphans included."""
    reading, writing = os.pipe()
    jobs = [
        crowd.start(user, dice.sample(KERNELS, dice.randrange(1, 6)), writing)
        for user in dice.choices(USERS, WEIGHTS, k=AT_ONCE)
    ]
    os.close(writing)
    doomed = dice.sample(jobs, AT_ONCE // 2)
    killed = 0
    for job in doomed:
        try:
            # The moment is random on purpose; nothing that is checked depends on it.
            job.wait(timeout=dice.uniform(0, 0.25))
        except subprocess.TimeoutExpired:
            killed += 1
            if dice.random() < 0.5:
                os.killpg(job.pid, signal.SIGKILL)
            else:
                job.kill()  # its command lives on, in a room without an owner
    wrong = []
    for job in jobs:
        said, _ = job.communicate()
        if "MIXED OR TORN" in said or (job.returncode != 0 and job.returncode != -signal.SIGKILL):
            wrong.append(f"status {job.returncode}: {said}")
    with os.fdopen(reading, "rb") as alive:
        alive.read()
    return killed, wrong


def test_crowd_with_random_kills_leaves_a_whole_warm_store(crowd: Crowd) -> None:
    """No job reads a torn or mixed entry, the store verifies, every later job is warm, and no room stays behind."""
    dice = random.Random(42)
    rounds = [_one_round(crowd, dice) for _ in range(ROUNDS)]

    assert [wrong for _, wrongs in rounds for wrong in wrongs] == []
    assert sum(killed for killed, _ in rounds) > 0

    for user in USERS:
        crowd.job(user)
    for user in USERS:
        said = crowd.job(user, "--require-warm", "--frozen")
        assert (said["hits"], said["compiled"]) == (len(KERNELS), 0)

    verified = crowd.program.ondol("store", "verify", "--store", str(crowd.store), "--json")
    assert verified.returncode == 0, verified
    assert json.loads(verified.stdout)

    assert [path.name for path in crowd.rooms_left() if is_signed(path)] == []
    for path in crowd.rooms_left():
        os.utime(path, (0, 0))
    for user in USERS:
        crowd.job(user, "--frozen")
    assert {path.name: told(path) for path in crowd.rooms_left()} == {}
