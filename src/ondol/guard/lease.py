"""A lease: a lock made of plain files, for file systems that have no locks.

    <base>.000001   over: its holder wrote `free`, or died
    <base>.000002   the newest one counts

Taking the lease is creating the file with the next number, which exactly one process can do (`O_EXCL`, atomic also on
NFS since version 3). A lease that its holder gave back, or whose holder is dead, is never removed and never taken over:
it is *succeeded*, by the same act. So two that find the same dead holder cannot both win, and nobody can take away a
lease other than the one it looked at. The newest file is never removed; older ones are, by the holder of a newer one.

The holder writes a new count into its file every few seconds. Another machine judges by that alone, on its own clock: a
file whose bytes stay the same for `PATIENCE` belongs to nobody. On the same machine a dead process is seen at once. A
holder that was merely stopped for longer than `PATIENCE` has lost the lease, and is told so when it gives it back.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from ondol.foreign_text import is_number
from ondol.host import files, process

PATIENCE = 60.0
BEAT = 5.0
_MAX_BYTES = 8192
#: How many numbers are left standing below the newest: a process that fell asleep between looking and creating finds
#: its number taken. (If it slept even longer it sees the newer ones right after creating, and steps back.)
_KEPT = 8
_STATE = re.compile(rb"(held|free) (\d{12})\n")


class Lease:
    """One process's part in a lease. `base` is an absolute path in a directory where we may create files."""

    kind = "lease"
    _stop_beating: Callable[[], None]

    def __init__(self, base: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.where = base
        self._folder, self._name = os.path.split(base)
        self._clock = clock
        #: (number, its bytes, when we first saw them like this)
        self._seen: tuple[int, bytes, float] = (0, b"", 0.0)
        self._fd = -1
        self._number = 0

    def attempt(self, shared: bool = False) -> bool:
        """Take it if it is free now: never shared, those who would share it take turns. Raises `OSError` where files
        cannot be created.
        """
        del shared
        newest = self._newest()
        if newest and not self._is_over(newest):
            return False
        try:
            self._fd = os.open(self._path(newest + 1), files.CREATE, 0o644)
        except FileExistsError:
            return False
        self._number = newest + 1
        try:
            files.write_all(self._fd, _state(b"held", 0) + process.myself().encode())
            os.fsync(self._fd)
            won = self._newest() == self._number
        except OSError:
            self._step_back()
            raise
        if not won:
            self._step_back()
            return False
        self._remove_old()
        self._stop_beating = _beating(self._tick)
        return True

    def release(self) -> bool:
        """Give it back. False if somebody had succeeded us already: we were silent for too long."""
        if self._fd < 0:
            return True
        self._stop_beating()
        kept = True
        # Without the word, the others wait until our process is seen to be dead, or for PATIENCE.
        with suppress(OSError):
            kept = self._newest() == self._number
            os.pwrite(self._fd, _state(b"free", 0), 0)
            os.fsync(self._fd)
        files.close_quietly(self._fd)
        self._fd, self._number = -1, 0
        return kept

    def _is_over(self, number: int) -> bool:
        data = self._read(number)
        state, owner = _parse(data)
        if state == b"free":
            return True
        # Another boot id may be another machine of the same name: only what happened under this kernel is certain.
        if owner and owner.boot == process.boot_id() and process.certainly_dead(owner):
            return True
        if self._seen[:2] != (number, data):
            self._seen = (number, data, self._clock())
        return self._clock() - self._seen[2] > PATIENCE

    def _read(self, number: int) -> bytes:
        try:
            # Opened anew each time: on NFS that is what makes another machine's last write visible.
            return files.read_regular(self._path(number), _MAX_BYTES)[0]
        except FileNotFoundError:
            return b""

    def _numbers(self) -> list[int]:
        found = (name[len(self._name) + 1 :] for name in os.listdir(self._folder) if name.startswith(f"{self._name}."))
        return sorted(int(number) for number in found if is_number(number))

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self._name}.{number:06d}")

    def _step_back(self) -> None:
        """Our number was an old one that had been removed meanwhile, or the disk has no room for our words."""
        files.close_quietly(self._fd)
        files.unlink_quietly(self._path(self._number))
        self._fd, self._number = -1, 0

    def _remove_old(self) -> None:
        for number in self._numbers():
            if number <= self._number - _KEPT:
                files.unlink_quietly(self._path(number))

    def _tick(self, count: int) -> None:
        os.pwrite(self._fd, _state(b"held", count), 0)
        os.fsync(self._fd)


def _state(word: bytes, count: int) -> bytes:
    """Always of the same length, so that writing it again touches nothing else."""
    return b"%s %012d\n" % (word, count)


def _parse(data: bytes) -> tuple[bytes, process.Owner | None]:
    """(state, owner); a file that was just created, or is torn, has no state and is judged by its silence."""
    found = _STATE.match(data)
    return (found[1], process.Owner.decode(data[found.end() :])) if found else (b"", None)


def _beating(tick: Callable[[int], None]) -> Callable[[], None]:
    """Call `tick` every few seconds, in a thread that takes no signals: they are for the one that waits.

    Returns what ends it.
    """
    import threading  # only where there are no kernel locks

    over = threading.Event()

    def beat() -> None:
        count = 0
        while not over.wait(BEAT):
            count += 1
            with suppress(OSError):  # a server that is away now may be back for the next one
                tick(count)

    def stop() -> None:
        over.set()
        thread.join()

    thread = threading.Thread(target=beat, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return stop
