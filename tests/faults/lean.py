"""Sweeps in a process of their own, with nothing in it but what they strike.

A strike forks it, and a job forks itself four times more. What a fork costs depends on how much there is to share: the
process that runs the tests has pytest and all that they have left in it.

    python -m faults.lean NAME ARGUMENTS
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from faults import job_strikes, strikes
from faults.crash_points import TALLY
from faults.operations import BY_NAME


def kill_violations(operation: str, base: Path) -> list[str]:
    return _ask("kill", operation, str(base))


def job_violations(place: Path, how: str, errors: Sequence[int] = (0,), step: int = 1) -> list[str]:
    return _ask("job", str(place), how, errors, step)


def _ask(*words: Any) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "faults.lean", json.dumps(words)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found, tally = json.loads(done.stdout)
    for kind, number in tally.items():
        TALLY[kind] += number
    assert isinstance(found, list)
    return found


SWEEPS: dict[str, Callable[..., list[str]]] = {
    "kill": lambda operation, base: strikes.kill_violations(BY_NAME[operation], Path(base)),
    "job": lambda place, how, errors, step: job_strikes.job_violations(Path(place), how, errors, step),
}

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # what is here now shall not be moved by a collection, and so stay shared
    sweep, *arguments = json.loads(sys.argv[1])
    print(json.dumps([SWEEPS[sweep](*arguments), TALLY]))
