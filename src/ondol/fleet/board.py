"""What a worker is given at its start; and the piece of it that it shares with its agent as memory: what it was doing,
for when it is too late to ask.

So a worker sends one message per item. What it would lose with its life is written here first: the phase of its item,
since when, and the reports of the phases that are over.
"""

import mmap
import struct
from dataclasses import dataclass

from ondol.fleet.starts import Place
from ondol.fleet.wire import AheadPipe, Channel

#: Bytes, of which only those that are written cost memory. Captured texts are bounded (`SECTION_LIMIT`).
SIZE = 16 << 20
PHASES = ("", "setup", "call", "teardown")
#: The phase, at 8 the time at which it began, at 16 the number of bytes of reports, at 24 the messages that were heard,
#: twice, and one more while the next one is waited for; and the reports. In the machine's own format: only that is
#: written at once, and a reader beside us never sees half of a number.
_SINCE = struct.Struct("d")
_LENGTH = struct.Struct("Q")
_HEARD = 24
_REPORTS = 32


class Board:
    """Written by the worker, read by the agent. Each write leaves something whole, wherever a kill comes."""

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        self._memory = mmap.mmap(-1, SIZE) if memory is None else memory
        self._used = self._heard = 0

    def waits(self) -> None:
        """For the next message; all that was to be said about the last one is said."""
        _LENGTH.pack_into(self._memory, _HEARD, 2 * self._heard + 1)

    def hears(self) -> None:
        """A message, before anything is done about it."""
        self._heard += 1
        _LENGTH.pack_into(self._memory, _HEARD, 2 * self._heard)

    def enter(self, phase: str, now: float) -> None:
        _SINCE.pack_into(self._memory, 8, now)
        self._memory[0] = PHASES.index(phase)

    def add(self, report: bytes) -> None:
        """Where there is no room for it, it comes with the end of its item, or not at all."""
        end = _REPORTS + self._used + len(report) + 1
        if end <= SIZE:
            self._memory[_REPORTS + self._used : end] = report + b","
            self._used += len(report) + 1
            _LENGTH.pack_into(self._memory, 16, self._used)

    def clear(self) -> None:
        """Nothing is reported of the item that is run now."""
        self._used = 0
        _LENGTH.pack_into(self._memory, 16, 0)

    @property
    def phase(self) -> str:
        """Empty between two items."""
        return PHASES[self._memory[0]] if self._memory[0] < len(PHASES) else ""

    @property
    def heard(self) -> int:
        """How many messages."""
        found: int = _LENGTH.unpack_from(self._memory, _HEARD)[0] // 2
        return found

    @property
    def waits_after(self) -> int | None:
        """How many it had heard when it began to wait for the next; None when it does not wait."""
        found: int = _LENGTH.unpack_from(self._memory, _HEARD)[0]
        return found // 2 if found % 2 else None

    @property
    def since(self) -> float:
        found: float = _SINCE.unpack_from(self._memory, 8)[0]
        return found

    @property
    def block(self) -> bytes:
        """The reports, as messages have them."""
        length = min(_LENGTH.unpack_from(self._memory, 16)[0], SIZE - _REPORTS)
        return b"[" + self._memory[_REPORTS : _REPORTS + length - 1] + b"]" if length else b""

    def close(self) -> None:
        self._memory.close()


@dataclass
class Given:
    """The worker's end of everything."""

    place: Place
    channel: Channel
    #: What it is handed while it is busy.
    lane: AheadPipe
    board: Board
    #: The descriptor for its stacks.
    dump: int
