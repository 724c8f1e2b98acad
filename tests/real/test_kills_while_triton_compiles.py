"""SIGKILL of everything while a real Triton compiles, at random moments: the store verifies, the next job is warmer."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from e2e.test_killed_jobs_lose_what_they_made import SOON, kill_all, verify
from people import ROOT, Program

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

#: More by hand: KILL_ROUNDS=300 pytest tests/real/test_kills_while_triton_compiles.py
ROUNDS = int(os.environ.get("KILL_ROUNDS", "10"))
KERNELS = 12
#: Ondol whose helper does not give way: on a busy machine the lowest priority would have us wait for minutes.
EAGER = SOON.replace("from ondol.cli", "import os\nos.nice = lambda _: 0\nfrom ondol.cli")


class Compiling:
    """A job that compiles, beside us. `stays`: it waits at its end until somebody kills it."""

    def __init__(self, program: Program, store: Path, kernels: Path, *, stays: bool) -> None:
        script = str(program.programs / "many_kernels.py")
        command = [program.python, script, str(kernels), str(store if stays else store / "not-there")]
        self.tag = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [program.python, "-c", EAGER, "run", "--store", str(store), "--", *command],
            env=program.env(TAG=self.tag),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def seen(self, number: int) -> list[str]:
        """The next so many lines; fewer if it ends."""
        assert self.process.stdout is not None
        lines = (self.process.stdout.readline().strip() for _ in range(number))
        return [line for line in lines if line]

    def kill_everything(self) -> None:
        kill_all(self.tag)
        self.process.communicate()


def stored(store: Path) -> set[str]:
    return {path.stem for path in store.rglob("lanes/*/main/triton/*/*.pack")}


def test_triton_killed_at_any_moment_leaves_the_next_job_warmer(
    program: Program, store_path: Path, public: Path
) -> None:
    kernels = public / "compiling"
    kernels.mkdir(exist_ok=True)
    shutil.copy(ROOT / "examples" / "demo" / "kernels.py", kernels)
    numbers = random.Random(12)
    grown = [len(stored(store_path))]
    for number in range(ROUNDS):
        before = stored(store_path)
        job = Compiling(program, store_path, kernels, stays=True)
        seen = job.seen(numbers.randint(1, 2 * KERNELS))
        if number % 5 == 4 and len(before) < KERNELS:
            # In some rounds not before there is more: what the helper is slow to give, a busy machine would hide.
            while stored(store_path) == before:
                assert job.process.poll() is None
                time.sleep(0.02)
        else:
            time.sleep(numbers.uniform(0, 0.05))  # anywhere in a compilation
        job.kill_everything()
        after = stored(store_path)
        assert before <= after, "an entry that was published is gone"
        assert seen.count("hit") <= len(before)
        grown.append(len(after))
    verify(program, store_path)
    sys.stderr.write(f"entries for the next job after each kill: {grown}\n")
    assert grown[-1] >= min(KERNELS, ROUNDS // 5)
    last = Compiling(program, store_path, kernels, stays=False)
    lines = last.seen(2 * KERNELS + 1)
    last.process.communicate()
    assert (last.process.returncode, lines.count("hit"), lines.count("compiled"), lines[-1]) == (
        0,
        grown[-1],
        KERNELS - grown[-1],
        "end",
    )
