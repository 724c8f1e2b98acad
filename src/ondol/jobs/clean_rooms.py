"""`ondol gc`: rooms that nobody can still want, in every directory that a job of ours might have chosen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ondol.host import filesystem
from ondol.room import choose, rendezvous
from ondol.room.room import is_over, rooms_in, sweep_away

#: A room that somebody filled with a million files is named by the first owners that are found in it.
_MAX_LOOKED_AT = 10_000


class CleanedRoom(NamedTuple):
    path: str
    #: removed, in use, or stuck: it is over, and somebody else's files are in it
    fate: str
    #: Whose files keep it.
    others: tuple[int, ...] = ()


def clean_rooms(room_dir: str, env: Mapping[str, str], open_age: float, *, dry_run: bool) -> list[CleanedRoom]:
    """Our own rooms; as root everybody's."""
    everybody = None if os.geteuid() == 0 else os.geteuid()
    bases = [offer.path for offer in choose.candidates(room_dir, env) if offer.path.startswith("/")]
    # One that a dead server holds is not looked at: asking would hold us too.
    local = [base for base in bases if not filesystem.is_network(filesystem.fs_type(base)) or base == room_dir]
    places = dict.fromkeys(map(os.path.realpath, local))
    if not dry_run:
        for base in places:
            rendezvous.sweep(base)
    return [_clean(path, open_age, dry_run=dry_run) for base in places for path in sorted(rooms_in(base, everybody))]


def _clean(path: str, open_age: float, *, dry_run: bool) -> CleanedRoom:
    if not is_over(path, open_age):
        return CleanedRoom(path, "in use")
    if dry_run or sweep_away(path):
        return CleanedRoom(path, "removed")
    return CleanedRoom(path, "stuck", _owners_in(path))


def _owners_in(path: str) -> tuple[int, ...]:
    found: set[int] = set()
    looked_at = 0
    for _, folders, names, here in os.fwalk(path):
        for name in [*folders, *names]:
            try:
                found.add(os.stat(name, dir_fd=here, follow_symlinks=False).st_uid)
            except OSError:
                continue  # going away
            looked_at += 1
        if looked_at > _MAX_LOOKED_AT:
            break
    return tuple(sorted(found - {os.geteuid()}))
