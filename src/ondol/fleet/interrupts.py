"""Ctrl-C and SIGTERM in the controller: once means stop and report, twice means now."""

from __future__ import annotations

import os
import signal
import threading
import types
from typing import Any


class Interrupts:
    """A context in which signals are counted instead of raised, and wake whoever selects on `fileno()`."""

    def __init__(self, *, escalate: bool = True) -> None:
        """`escalate`: the third one is raised; False where a scheduler, not a person, sends them."""
        self._escalate = escalate
        self.count = 0
        self.signal = 0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old: dict[int, Any] = {}

    def fileno(self) -> int:
        return self._read

    def descriptors(self) -> list[int]:
        return [self._read, self._write]

    def __enter__(self) -> Interrupts:
        # `pytest.main()` in a thread: signals are the main thread's, whose program decides what they mean.
        here = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if here else ():
            self._old[number] = signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _frame: types.FrameType | None) -> None:
        self.count += 1
        self.signal = number
        try:
            os.write(self._write, b"!")
        except OSError:
            pass
        if self._escalate and self.count > 2:
            # Whoever types it a third time wants out of a hook that hangs.
            raise KeyboardInterrupt

    def acknowledge(self) -> None:
        try:
            os.read(self._read, 64)
        except BlockingIOError:
            pass

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)
