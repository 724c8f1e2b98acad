"""A kept journal as one file: zstd frames that `zstdcat` reads too.

    a skippable frame    how long the two frames are, packed and unpacked
    a frame              one line: what became of each item, for who reads hundreds of runs (`past`)
    a frame              the journal, whole, as it was written

The first line is an event that readers of journals do not know and pass over, so all of it together is a journal.
"""

from __future__ import annotations

import struct

from ondol.host import zstd

SUFFIX = ".jsonl.zst"
#: Magic and size of the skippable frame (RFC 8878, 3.1.2), then packed and unpacked lengths of line and journal.
_HEAD = struct.Struct("<II4Q")
_MAGIC = 0x184D2A5D
_LEVEL = 3
#: Unpacked, of the line and of the journal: who wrote the file can promise what he likes.
LONGEST_LINE, LONGEST = 64 << 20, 512 << 20


class NotKept(ValueError):
    """Not a file of this kind, or a damaged one."""


def pack(line: bytes, journal: bytes) -> bytes:
    frames = [zstd.codec().compress(part, _LEVEL) for part in (line, journal)]
    lengths = (len(frames[0]), len(line), len(frames[1]), len(journal))
    return _HEAD.pack(_MAGIC, _HEAD.size - 8, *lengths) + b"".join(frames)


def line_of(data: bytes) -> bytes:
    """The first line; `data` is the file, or as much of its beginning as `enough` says."""
    packed, size, _, _ = _lengths(data)
    return _unpacked(data[_HEAD.size : _HEAD.size + packed], size, LONGEST_LINE)


def enough(head: bytes) -> int:
    """How many bytes of the file hold its first line."""
    return _HEAD.size + _lengths(head)[0]


def journal_of(data: bytes) -> bytes:
    packed, _, rest, size = _lengths(data)
    return _unpacked(data[_HEAD.size + packed :][:rest], size, LONGEST)


HEAD = _HEAD.size


def _lengths(data: bytes) -> tuple[int, int, int, int]:
    if len(data) < _HEAD.size:
        raise NotKept("too short")
    magic, size, *lengths = _HEAD.unpack_from(data)
    if magic != _MAGIC or size != _HEAD.size - 8:
        raise NotKept("it does not begin as a kept journal does")
    packed, line, rest, journal = lengths
    return packed, line, rest, journal


def _unpacked(frame: bytes, size: int, longest: int) -> bytes:
    if size > longest or zstd.read_frame(frame).content_size != size:
        raise NotKept("it is longer than it may be, or than it says")
    return zstd.codec().decompress(frame, size)
