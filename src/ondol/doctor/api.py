"""What a check says: what is wrong, where, why that hurts, and what to type.

What `--fix` may do is not code of the check but data in its findings (`Repair`): so that `--dry-run` shows exactly what
would be done, and one careful place (`repair`) does it.
"""

import os
from typing import NamedTuple

ERROR, WARNING, NOTE = "error", "warning", "note"
#: Worst first.
SEVERITIES = {ERROR: "will fail a job", WARNING: "may hurt", NOTE: "worth knowing"}


class Location(NamedTuple):
    """Where it is, and whose it is."""

    path: str
    #: -1 where there is nothing to ask.
    owner: int = -1
    group: int = -1
    #: Octal, four digits; empty where there is nothing to ask.
    mode: str = ""


class Repair(NamedTuple):
    """One change that `--fix` may make for this caller, to one file or directory of the caller's own."""

    #: `chmod` or `remove`
    action: str
    path: str
    #: What was looked at; whatever has taken its name since is left alone.
    device: int
    inode: int
    #: For chmod: bits to add and to take away.
    add: int = 0
    drop: int = 0
    #: For remove: when it was written. A lock that is made anew may well get the inode of the old one.
    written_ns: int = 0
    #: Whether it was carried out; if it was tried and is not, why it was left alone.
    done: bool = False
    refused: str = ""


class Finding(NamedTuple):
    #: A key of `SEVERITIES`.
    severity: str
    #: One sentence that names the thing.
    what: str
    where: Location
    #: Why it will hurt.
    why: str
    #: The exact command to type; empty if there is none.
    fix: str = ""
    #: How many places are like `where`, itself included.
    places: int = 1
    #: What `--fix` may do about it for this caller.
    repairs: tuple[Repair, ...] = ()
    #: Whose finding it is; `examine` writes it in.
    check: str = ""


def place(path: str, status: os.stat_result) -> Location:
    return Location(path, status.st_uid, status.st_gid, f"{status.st_mode & 0o7777:04o}")


def look(path: str) -> Location:
    """The place as it is now, also if it cannot be asked."""
    try:
        return place(path, os.lstat(path))
    except OSError:
        return Location(path)
