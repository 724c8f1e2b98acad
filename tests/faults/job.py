"""A whole job in this process: a real command that writes a Triton entry, a real store, a real room."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from handmade import elf, key_of
from ondol import config
from ondol.host import process
from ondol.jobs import maker, run_command
from ondol.jobs.job import Job
from ondol.room import room

#: Written as Triton does, group file last; the shell is the fastest program that can. Where Ondol names no directory,
#: the job has one of its own, as Triton has one in the home directory.
_SCRIPT = """
make() {{
  folder=${{TRITON_CACHE_DIR:-{own}}}/$1
  [ -e "$folder/__grp__add.json" ] && return
  cp -pR {made}/. "$folder"
  printf '{{"hash": "%s"}}' "$1" > "$folder/add.json"
  printf '{{"child_paths": {{"add.cubin": "%s", "add.json": "%s"}}}}' "$folder/add.cubin" "$folder/add.json" \
    > "$folder/__grp__add.json"
}}
for key in {keys}; do make $key; done
exit {status}
"""


def command(place: Path, numbers: tuple[int, ...], status: int = 0) -> list[str]:
    own, made = place / "own", place / "made"
    if not made.exists():
        own.mkdir()
        made.mkdir()
        (made / "add.cubin").write_bytes(elf(b"code"))
        os.utime(made / "add.cubin", (0, 0))  # nobody knows how long it took: each run publishes the same bytes
    keys = " ".join(key_of(number) for number in numbers)
    words = {"own": shlex.quote(str(own)), "made": shlex.quote(str(made)), "keys": keys, "status": status}
    return ["/bin/sh", "-c", _SCRIPT.format(**words)]


def rooms(place: Path) -> Path:
    path = place / "rooms"
    path.mkdir(exist_ok=True)
    return path


def run(place: Path, argv: list[str], **options: Any) -> dict[str, Any]:
    """What the job reports, with the status that `ondol run` would end with."""
    given = {"store": str(place / "store"), "tools": "triton", "publish": "on-success", "room-dir": str(rooms(place))}
    settings = config.merge({**given, **options}, {})
    job = Job(argv, settings, {"PATH": os.environ["PATH"]}, lambda _what, _done, _total: None)
    # git's calls are not ours to strike; and without the time of day each run publishes the same bytes.
    real, maker.provenance = maker.provenance, lambda env: {}
    try:
        status = run_command.run(job)
    finally:
        maker.provenance = real
    return {**job.report.as_dict(), "status": status}


def rooms_left(place: Path) -> list[str]:
    """Rooms that a later job should have swept: those whose owner had signed them."""
    left = [rooms(place) / name for name in os.listdir(rooms(place)) if name.startswith(room.PREFIX)]
    return [path.name for path in left if is_signed(path)]


def is_signed(path: Path) -> bool:
    """Whether its owner's note is whole. A room without one is swept when it is a day old."""
    try:
        return (path / "owner").read_text().endswith(f" {process.pid_namespace()}")  # the last word, whole
    except FileNotFoundError:
        return False
