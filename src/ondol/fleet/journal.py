"""The journal of a run: one JSON line per event, written before anything is shown. Everything else is a rendering of
it.

Each line is one `write` to a file opened for appending, so a SIGKILL at any point leaves whole lines and at most one
torn one at the end, which reading skips.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ondol.errors import UsageError

FORMAT = 1
Event = dict[str, Any]


class Journal:
    """The writing end; owned by the controller."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = _open(path)
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


def _open(path: Path) -> int:
    """For us alone: captured output may hold secrets. Never through a link, which anybody could have put there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass  # a run that began again after a test file ended its collection
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise UsageError(f"the journal {path} cannot be written", because=error.strerror or "", hint="--journal FILE")
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(fd)
        why = f"it belongs to uid {status.st_uid}, is no plain file, or has another name"
        raise UsageError(f"the journal {path} is not ours alone", because=why, hint="--journal FILE")
    os.fchmod(fd, 0o600)
    return fd


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
