"""Which entries were useful and when, so that cleaning can drop the least useful first.

Readers own no pack and may not touch its times, so each UID keeps notes in its own lane: one small file per day, one
address a line. Two jobs of one UID that write at once may lose each other's line; the notes are hints and nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ondol.host import files
from ondol.store import lane as lanes_of
from ondol.store.entry import Address
from ondol.words import is_plain_name

_DAY = 86400
_MAX_BYTES = 64 << 20
#: Notes older than this are forgotten when new ones are written.
KEPT_DAYS = 90


def note(lane: lanes_of.Lane, addresses: Iterable[Address], now: float) -> None:
    folder = lane.make_folder(lanes_of.USAGE)
    today = str(int(now // _DAY))
    lines = {"/".join(address) for address in addresses}
    known = set(_lines(folder, today))
    if lines <= known:
        return
    temporary = f".{files.random_name()}"
    try:
        files.write_new(temporary, "\n".join(sorted(lines | known)).encode(), 0o644, dir_fd=folder, sync=False)
        os.rename(temporary, today, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        files.unlink_quietly(temporary, dir_fd=folder)
    for name in files.list_names(folder):
        if name.isdigit() and int(name) < int(today) - KEPT_DAYS:
            files.unlink_quietly(name, dir_fd=folder)


def read(lane: lanes_of.Lane) -> Iterator[tuple[Address, float]]:
    """(address, seconds since the epoch) of each note in a lane; unreadable notes are skipped."""
    for name in lane.names(lanes_of.USAGE):
        if not name.isdigit():
            continue
        for line in _lines(lane.folder(lanes_of.USAGE), name):
            parts = line.split("/")
            if len(parts) == 4 and all(map(is_plain_name, parts)):
                yield Address(*parts), float(int(name) * _DAY)


def _lines(folder: int, name: str) -> list[str]:
    try:
        data, _ = files.read_regular(name, _MAX_BYTES, dir_fd=folder)
    except OSError:
        return []
    return data.decode("utf-8", "replace").split("\n")
