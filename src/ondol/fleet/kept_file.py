"""A kept journal as one file: two zstd frames, which `zstdcat` reads as one journal.

The first is one line, what became of each item, for who reads hundreds of runs (`past`); readers of journals pass that
event over. The second is the journal, whole, as it was written.
"""

from __future__ import annotations

from ondol.host import zstd

SUFFIX = ".jsonl.zst"
#: Unpacked, of the line and of the journal: who wrote the file can promise what he likes.
_LINE, LONGEST = 64 << 20, 512 << 20


def pack(line: bytes, journal: bytes) -> bytes:
    return b"".join(zstd.codec().compress(part, 3) for part in (line, journal))


def line_of(data: bytes) -> bytes:
    """Raises `ZstdError`, as `journal_of` does."""
    return _first(data, _LINE)[0]


def journal_of(data: bytes) -> bytes:
    return _first(_first(data, _LINE)[1], LONGEST)[0]


def _first(data: bytes, longest: int) -> tuple[bytes, bytes]:
    """The contents of the first frame, and what follows it."""
    frame = zstd.read_frame(data)
    if frame.content_size is None or frame.content_size > longest:
        raise zstd.ZstdError("longer than it may be")
    end = zstd.end_of(frame, data)
    return zstd.codec().decompress(data[:end], frame.content_size), data[end:]
