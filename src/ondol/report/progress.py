"""A progress bar on a terminal, for work that takes long; silence everywhere else."""

from __future__ import annotations

import sys
import time

from ondol import words
from ondol.light import Any

#: Work that is over sooner than this never draws anything.
_PATIENCE = 0.5


class Bar:
    """Call it with (what, done, total) as often as you like; use it as a context manager."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._started = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._enabled or time.monotonic() - self._started < _PATIENCE:
            return
        what = words.printable(what)
        if self._progress is None:
            if done >= total:
                return
            try:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
            except ImportError:  # ondol.pyz brings none
                self._enabled = False
                return

            columns = (
                TextColumn("ondol: {task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(what, total=total)
        self._progress.update(self._task, description=what, completed=done, total=total)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Take the bar off the screen before anybody else writes there."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
