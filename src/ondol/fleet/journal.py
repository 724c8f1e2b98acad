"""The journal of a run: one JSON line per event, written before anything is shown. Everything else is a rendering of
it.

Each line is one `write` to a file opened for appending, so a SIGKILL at any point leaves whole lines and at most one
torn one at the end, which reading skips.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT = 1
Event = dict[str, Any]


class Journal:
    """The writing end; owned by the controller."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._owner = os.getpid()

    def fileno(self) -> int:
        return self._fd

    def write(self, *events: Event) -> None:
        """One system call for all of them."""
        if os.getpid() != self._owner:
            return  # a fork of the controller: the journal is not its business
        now = round(time.time(), 4)
        lines = b"".join(json.dumps({"t": now, **e}, default=repr).encode() + b"\n" for e in events)
        view = memoryview(lines)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        if os.getpid() == self._owner:
            os.fsync(self._fd)
        os.close(self._fd)


def read(path: Path) -> Iterator[Event]:
    """Every whole event; a torn last line is what a kill leaves, not an error."""
    with open(path, "rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "e" in event:
                yield event
