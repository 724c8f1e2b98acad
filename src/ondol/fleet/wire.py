"""Messages between controller, agent and workers: one frame of JSON each, on a descriptor of their own.

A worker shares its descriptors with whatever code the tests run, and that code may write anything to any of them. So a
frame starts with a token that only the two ends know, and carries its length and checksums: bytes that are not a frame
are skipped and counted, and the next good frame is found again.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import zlib
from collections.abc import Iterator

from ondol.fleet.messages import Message, dump, load

TOKEN_BYTES = 16
_LENGTH = struct.Struct("<I")
#: Length, its own checksum (a length that was written into would have us wait for ever), the body's checksum.
_HEAD = struct.Struct("<III")
#: Above this a length is garbage, not a message.
MAX_FRAME = 512 << 20
#: Descriptors are moved up here, away from the numbers that tests close in ranges.
HIGH_FD = 700


def encode(token: bytes, message: Message) -> bytes:
    body = dump(message)
    return token + _HEAD.pack(len(body), _checksum(_LENGTH.pack(len(body))), _checksum(body)) + body


def _checksum(data: bytes) -> int:
    return zlib.crc32(data)


class Decoder:
    """Bytes in, messages out; `garbage` counts the bytes that belonged to no message."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._buffer = bytearray()
        self.garbage = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        self._buffer += data
        while True:
            start = self._buffer.find(self._token)
            if start < 0:
                # The last bytes may be the beginning of a token that is still on its way.
                self._skip(max(0, len(self._buffer) - len(self._token) + 1))
                return
            self._skip(start)
            head = len(self._token) + _HEAD.size
            if len(self._buffer) < head:
                return
            length, length_checksum, checksum = _HEAD.unpack_from(self._buffer, len(self._token))
            if length > MAX_FRAME or _checksum(_LENGTH.pack(length)) != length_checksum:
                self._skip(1)
                continue
            if len(self._buffer) < head + length:
                return
            body = bytes(self._buffer[head : head + length])
            if _checksum(body) != checksum:
                self._skip(1)
                continue
            message = load(body)
            if message is None:
                self._skip(head + length)
                continue
            del self._buffer[: head + length]
            yield message

    def _skip(self, count: int) -> None:
        self.garbage += count
        del self._buffer[:count]


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


class Lane:
    """Messages for a worker that is still busy, handed ahead so that it need not wait for them.

    A pipe of packets that both ends can read: who reads one first has it. So the agent can take back what the worker
    has not begun, without asking a process that may not answer for an hour.
    """

    def __init__(self, token: bytes, reading: int, writing: int = -1) -> None:
        self._token = token
        self.reading, self.writing = reading, writing

    @classmethod
    def open(cls, token: bytes) -> Lane:
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
