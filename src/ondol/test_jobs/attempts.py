"""When attempts of a test run were at work that ended badly, or have not ended: what was written then may be half."""

import math
import os
from pathlib import Path

from ondol.fleet.journal import End, Start, events_in
from ondol.room.harvest import SETTLING, Span

#: A process that ended like this had reached the end of its item.
_ORDERLY = frozenset({"passed", "failed", "error", "skipped", "xfailed", "xpassed", "done"})
#: Seconds from the start of an attempt until we hear of it, on a busy machine.
_LATE = 1.0


class Attempts:
    """Told of every start and end."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int], float] = {}
        self._cut_off: list[Span] = []
        self._who = os.getpid()

    def start(self, item: int, attempt: int, now: float, late: float = _LATE) -> None:
        """`late`: for how long it may have been under way."""
        self._begun[item, attempt] = now - late

    def end(self, item: int, attempt: int, outcome: str, now: float) -> None:
        begun = self._begun.pop((item, attempt), now - SETTLING)
        if outcome not in _ORDERLY:
            self._cut_off.append((begun, now))

    def spans(self) -> list[Span]:
        if os.getpid() != self._who:
            return [(0.0, math.inf)]  # a fork is told nothing
        return self._all()

    def _all(self) -> list[Span]:
        return [*self._cut_off, *((begun, math.inf) for begun in self._begun.values())]


class InJournal(Attempts):
    """Read from a journal, as far as it is written."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._read = 0

    def spans(self) -> list[Span]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    for now, event in events_in(line):
                        if isinstance(event, Start):
                            # A preparation that failed has no device, and is told of when it is over.
                            late = _LATE if event.device else SETTLING
                            self.start(event.item, event.attempt, now, late)
                        elif isinstance(event, End):
                            self.end(event.item, event.attempt, event.outcome, now)
        except OSError:
            pass  # not begun: nothing runs yet
        return self._all()
