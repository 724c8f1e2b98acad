"""Proof, on the machine and the directory in question, that the lock on a cache lets one process in at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from ondol.errors import UsageError
from ondol.guard.holder import Holder
from ondol.guard.lock import CacheLock
from ondol.host import bounded, files, identity, process
from ondol.light import Record

#: How often the lock is taken, and how long it is kept: long enough for another process to get in if it can.
ROUNDS_EACH = 5
_KEEP = 0.02
_TIME = 300.0


class SelftestResult(Record):
    processes: int
    rounds: int
    #: How often somebody else was inside.
    clashes: int
    #: How often the lock had to be waited for: without that, nothing was proved.
    contended: int
    standing: str
    passed: tuple[str, ...]


def prove(
    cache: str, processes: int, env: Mapping[str, str], wait: float, tell: Callable[[str], None]
) -> SelftestResult:
    """Let so many processes in and out. `clashes == 0`, a lock that stands and some waiting are the proof."""
    here = {name: value for name, value in env.items() if not name.startswith("ONDOL_GUARDED")}
    lock = CacheLock(cache, _somebody, tell, here, wait=wait)
    marker = os.path.join(lock.cache, f".ondol-selftest-{files.random_name()}")
    pieces = list(range(processes * ROUNDS_EACH))
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
    answers = bounded.in_parallel(pieces, lambda _: _enter(cache, marker, here, wait), processes, _TIME)
    files.unlink_quietly(marker)
    return SelftestResult(
        processes,
        len(answers),
        sum(clash for clash, _, _, _ in answers),
        sum(waited > _KEEP / 2 for _, waited, _, _ in answers),
        next((standing for _, _, standing, _ in answers), ""),
        tuple(next((passed for _, _, _, passed in answers), ())),
    )


def _enter(cache: str, marker: str, env: Mapping[str, str], wait: float) -> tuple[bool, float, str, list[str]]:
    lock = CacheLock(cache, _somebody, lambda _: None, env, wait=wait)
    lock.acquire()
    standing = lock.standing
    clash = False
    try:
        os.close(os.open(marker, files.CREATE, 0o600))
    except FileExistsError:
        clash = True
    time.sleep(_KEEP)
    if not clash:
        files.unlink_quietly(marker)
    lock.release()
    return clash, lock.waited, standing, lock.passed


def _somebody() -> Holder:
    return Holder(process.myself(), identity.hostname(), time.time(), "ondol guard --selftest")
