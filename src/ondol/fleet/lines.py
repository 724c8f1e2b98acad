"""Messages on the standard streams of a launch command (`srun`, `ssh`, `docker run -i`): one line of text each.

Text and whole lines, because some carriers send nothing before a newline and others pass through a terminal. A line
holds a token that only the two ends know, a checksum and JSON without any character above ASCII. Whatever else arrives
(a login message, a print during collection) is no message and is counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from ondol.fleet.messages import Message, dump, load


def encode(token: str, message: Message) -> bytes:
    body = dump(message)
    return f"{token} {zlib.crc32(body):08x} ".encode() + body + b"\n"


class LineDecoder:
    """Bytes in, messages out; `garbage` counts the bytes that belonged to none."""

    def __init__(self, token: str) -> None:
        self._token = f"{token} ".encode()
        self._parts: list[bytes] = []
        self.garbage = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._parts.append(line)
            message = self._read(b"".join(self._parts))
            self._parts.clear()
            if message is not None:
                yield message
        if rest:
            self._parts.append(rest)

    def _read(self, line: bytes) -> Message | None:
        # Somebody may have printed without a newline just before ours.
        start = line.find(self._token)
        if start >= 0:
            self.garbage += start
            checksum, _, body = line[start + len(self._token) :].rstrip(b"\r").partition(b" ")
            if checksum == f"{zlib.crc32(body):08x}".encode():
                message = load(body)
                if message is not None:
                    return message
        self.garbage += len(line) + 1
        return None
