"""Proof, on the machine and the directory in question, that the lock on a cache lets one process in at a time."""

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from ondol.errors import UsageError
from ondol.guard.lock import VARIABLE, CacheLock
from ondol.host import bounded, files

#: How many take the lock, how often each, and how long it is kept: long enough for another to get in if it can.
PROCESSES, _ROUNDS_EACH = 6, 5
_KEEP = 0.02
_TIME = 300.0


class Turn(NamedTuple):
    """One process was inside."""

    #: Somebody else was there too.
    clash: bool
    #: The lock had to be waited for: without that, nothing is proved.
    waited: bool
    standing: str
    passed: list[str]


def prove(cache: str, env: Mapping[str, str], wait: float) -> list[Turn]:
    """Let several processes in and out. No clash, a lock that stands and some waiting are the proof."""
    marker = os.path.join(cache, f".ondol-selftest-{files.random_name()}")
    try:
        os.makedirs(cache, exist_ok=True)
        os.close(os.open(marker, files.CREATE, 0o600))
        os.unlink(marker)
    except OSError as error:
        raise UsageError(
            f"the lock on {cache} cannot be tried",
            because=error.strerror or "",
            hint="name a directory that you can write",
        )
    around = {name: value for name, value in env.items() if name != VARIABLE}
    turns = list(range(PROCESSES * _ROUNDS_EACH))
    found: list[Turn] = bounded.in_parallel(turns, lambda _: _enter(cache, marker, around, wait), PROCESSES, _TIME)
    files.unlink_quietly(marker)
    return found


def _enter(cache: str, marker: str, env: Mapping[str, str], wait: float) -> Turn:
    lock = CacheLock(cache, ["ondol", "guard", "--selftest"], lambda _: None, env, wait=wait)
    lock.acquire()
    try:
        os.close(os.open(marker, files.CREATE, 0o600))
        clash = False
    except FileExistsError:
        clash = True
    time.sleep(_KEEP)
    if not clash:
        files.unlink_quietly(marker)
    lock.release()
    return Turn(clash, lock.waited > _KEEP / 2, lock.standing, lock.passed)
