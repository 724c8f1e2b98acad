"""Standard input and output of a node program, made safe: they carry messages, and code that prints must not reach
them.
"""

import fcntl
import os
import select

from ondol.fleet.wire import HIGH_FD

#: What a pipe takes at once when it says that it is writable (POSIX's least).
_AT_ONCE = 4096


class Stdio:
    """The two streams on descriptors of their own; 0 is empty from now on, and 1 is standard error."""

    def __init__(self) -> None:
        self.reading = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
        self.writing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._outbox = bytearray()
        #: Nobody reads what we write.
        self.broken = False

    def read(self) -> bytes:
        """What is there, waiting for it; empty at the end."""
        try:
            return os.read(self.reading, 1 << 16)
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        self._outbox += data

    @property
    def has_more_to_send(self) -> bool:
        return bool(self._outbox) and not self.broken

    def flush_some(self) -> None:
        """As much as goes without waiting; the descriptor may be shared, so it is not made non-blocking."""
        try:
            while self._outbox and select.select([], [self.writing], [], 0)[1]:
                sent = os.write(self.writing, self._outbox[:_AT_ONCE])
                del self._outbox[:sent]
        except OSError:
            self.broken = True
            self._outbox.clear()

    def flush(self, seconds: float) -> None:
        """All of it, if the other end takes it within so many seconds."""
        while self.has_more_to_send and select.select([], [self.writing], [], seconds)[1]:
            self.flush_some()
