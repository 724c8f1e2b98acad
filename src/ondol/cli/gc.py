"""`ondol gc`"""

import argparse
import os
import time

from ondol import units
from ondol.cli import flags, output
from ondol.fleet import journals, kept
from ondol.room.room import OPEN_AGE, CleanedRoom, clean_rooms


@flags.command(
    "gc",
    """Remove rooms and journals that nobody can still want, and say what cannot be removed and who can.

Every job removes its own room, and what killed jobs of the same user left. What stays are rooms with files of another
user in them (a container's), and rooms that were opened and never closed. Root cleans everybody's. Journals of
test runs are kept for 30 days, at most 50 and 1 GiB of them; packed, for `ondol history`, for 90 days, at most 1000
and 2 GiB. The store has a cleaning of its own: `ondol store gc`.""",
    """\
  ondol gc
  sudo ondol gc --room-dir /scratch        everybody's, also what containers left
  ondol gc --older-than 1h --dry-run       also open rooms that nobody has closed for an hour""",
)
def main(parsed: argparse.Namespace) -> None:
    room_dir = flags.settings(parsed).room_dir
    age = OPEN_AGE if parsed.older_than is None else parsed.older_than
    now, dry_run = time.time(), parsed.dry_run
    found = clean_rooms(room_dir, os.environ, age, dry_run=dry_run)
    old = [CleanedRoom(path, "removed") for place in (journals, kept) for path in place.clean(now, dry_run=dry_run)]
    gone = sum(room.fate == "removed" for room in found)
    verb = "would remove" if dry_run else "removed"
    too_old = f" and {units.plural(len(old), 'journal')}" if old else ""
    total = f"{verb} {units.plural(gone, 'room')}{too_old}, {units.plural(len(found) - gone, 'room')} stay"
    facts = {"places": [thing._asdict() for thing in [*found, *old]]}
    output.answer("gc", facts, [*(_line(room, verb) for room in [*found, *old]), total], as_json=parsed.json)


def _line(room: CleanedRoom, verb: str) -> str:
    if room.fate == "removed":
        return f"{verb} {room.path}"
    if room.fate != "stuck":
        return f"{room.fate}: {room.path}"
    whose = ", ".join(map(str, room.others)) or "another user"
    return f"cannot be removed: {room.path} holds files of uid {whose}: they can remove them, or root: sudo ondol gc"
