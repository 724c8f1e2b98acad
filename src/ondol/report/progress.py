"""A line that grows on a terminal, for work that takes long; silence everywhere else."""

import os
import shutil
import sys
import time

from ondol.foreign_text import printable

#: Work that is over sooner than this never draws anything; and the time between two drawings.
_PATIENCE, _PACE = 0.5, 0.1
_WIDTH = 30


class ProgressBar:
    """Call it with (what, done, total) as often as you like; use it as a context manager."""

    def __init__(self, *, enabled: bool = True) -> None:
        # A dumb terminal cannot take a line back.
        known = os.environ.get("TERM", "dumb") != "dumb"
        self._enabled = enabled and known and sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _PATIENCE
        self._drawn = False

    def __call__(self, what: str, done: int, total: int) -> None:
        if done >= total:
            self.close()
        elif self._enabled and time.monotonic() >= self._next:
            self._next = time.monotonic() + min(_PACE, _PATIENCE)
            full = _WIDTH * done // total
            line = f"ondol: {printable(what)} [{'#' * full}{' ' * (_WIDTH - full)}] {done}/{total}"
            self._write("\r\x1b[2K" + line[: shutil.get_terminal_size().columns - 1])
            self._drawn = True

    def close(self) -> None:
        """Take the bar off the screen before anybody else writes there."""
        if self._drawn:
            self._write("\r\x1b[2K")
            self._drawn = False

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._enabled = False  # nobody looks any more

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
