"""Messages between the processes of a run: one line of text each, on a descriptor of their own or on the standard
streams of a launch command (`srun`, `ssh`, `docker run -i`).

A worker shares its descriptors with whatever code the tests run, and that code may write anything to any of them; a
launch command may print a login message. So a line holds a token that only the two ends know, and a checksum: bytes
that belong to no message are skipped and counted, and the next good line is found again. Text and whole lines, because
some carriers send nothing before a newline and others pass through a terminal.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import zlib
from collections.abc import Iterator

from ondol.fleet.messages import Message, dump, load

#: Descriptors are moved up here, away from the numbers that tests close in ranges.
HIGH_FD = 700
#: What a pipe takes at once when it says that it is writable (POSIX's least).
_AT_ONCE = 4096


def new_token() -> bytes:
    return os.urandom(16).hex().encode()


def encode(token: bytes, message: Message) -> bytes:
    body = dump(message)
    return token + _checksum(body) + body + b"\n"


def _checksum(data: bytes) -> bytes:
    return b"%08x" % zlib.crc32(data)


class Decoder:
    """Bytes in, messages out; `garbage` counts the bytes that belonged to no message."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        #: The beginning of a line whose end is still on its way.
        self._rest = bytearray()
        self.garbage = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        *whole, rest = data.split(b"\n")
        for line in whole:
            message = self._read(bytes(self._rest + line))
            self._rest.clear()
            if message is not None:
                yield message
        self._rest += rest
        if not self._rest.startswith(self._token):
            # Nobody need remember what a test pours into our channel; its last bytes may begin a token.
            start = self._rest.find(self._token)
            skipped = start if start >= 0 else max(0, len(self._rest) - len(self._token) + 1)
            self.garbage += skipped
            del self._rest[:skipped]

    def _read(self, line: bytes) -> Message | None:
        """Its last token counts: somebody printed without a newline just before, or was cut off in the middle."""
        start = line.rfind(self._token)
        if start >= 0:
            told = line[start + len(self._token) :].rstrip(b"\r")
            message = load(told[8:]) if _checksum(told[8:]) == told[:8] else None
            if message is not None:
                self.garbage += start
                return message
        self.garbage += len(line) + 1
        return None


class Channel:
    """One end of a stream socket that carries messages."""

    def __init__(self, sock: socket.socket, token: bytes) -> None:
        self.sock = sock
        self._token = token
        self.decoder = Decoder(token)
        self._ready: list[Message] = []

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, *messages: Message) -> None:
        """Blocks until the other end has room; raises OSError when it is gone."""
        self.sock.sendall(b"".join(encode(self._token, message) for message in messages))

    def receive_all(self) -> tuple[list[Message], bool]:
        """What has arrived, without waiting, and whether the other end is still there."""
        found: list[Message] = []
        while True:
            try:
                data = self.sock.recv(1 << 18, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return found, True
            except OSError:
                return found, False
            if not data:
                return found, False
            found += self.decoder.feed(data)

    def receive(self) -> Message | None:
        """The next message, waiting for it; None when the other end is gone."""
        while not self._ready:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._ready += self.decoder.feed(data)
        return self._ready.pop(0)

    def close(self) -> None:
        self.sock.close()


class AheadPipe:
    """Messages for a worker that is still busy, handed ahead so that it need not wait for them.

    A pipe of packets that both ends can read: who reads one first has it. So the agent can take back what the worker
    has not begun, without asking a process that may not answer for an hour.
    """

    def __init__(self, token: bytes, reading: int, writing: int = -1) -> None:
        self._token = token
        self.reading, self.writing = reading, writing

    @classmethod
    def open(cls, token: bytes) -> AheadPipe:
        return cls(token, *os.pipe2(os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC))

    def put(self, message: Message) -> bool:
        """False when there is no room: then it must wait for its turn."""
        data = encode(self._token, message)
        try:
            return len(data) <= select.PIPE_BUF and os.write(self.writing, data) == len(data)
        except OSError:
            return False

    def take(self) -> Message | None:
        """The next one; None when there is none, and when a test has closed the descriptor."""
        data = self._read()
        return next(Decoder(self._token).feed(data), None) if data else None

    def take_all(self) -> list[Message]:
        """All that is left. Read first and decoded then: the other end takes some meanwhile, and so the fewest."""
        packets = list(iter(self._read, b""))
        return [message for data in packets for message in Decoder(self._token).feed(data)]

    def _read(self) -> bytes:
        try:
            return os.read(self.reading, select.PIPE_BUF)
        except OSError:
            return b""

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


def move_up(fd: int) -> int:
    """Away from the numbers that tests like to close in ranges."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    os.close(fd)
    return high


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends with room for a burst of reports."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ends


class Stdio:
    """Standard input and output of a node program, on descriptors of their own: code that prints must not reach them.

    0 is empty from now on, and 1 is standard error.
    """

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
