"""Processes that a killed run left on a machine: found by the tag in their environment, ended only when the process
that the tag names is certainly dead.
"""

from __future__ import annotations

import os

from ondol.host import killing
from ondol.host.process import Owner, certainly_dead
from ondol.words import is_number

#: In the environment of everything that a node program starts.
VARIABLE = "ONDOL_OWNER"


def tag(owner: Owner) -> str:
    return " ".join([str(owner.pid), owner.start, owner.boot, owner.namespace])


def owner_of(text: str) -> Owner | None:
    """Who wrote the tag; None for a text that says nothing."""
    words = text.split(" ")
    return Owner(int(words[0]), *words[1:]) if len(words) == 4 and is_number(words[0], 9) else None


def sweep() -> list[int]:
    """End the leftovers of dead runs of this user; returns their pids."""
    found = [pid for pid in map(int, filter(is_number, os.listdir("/proc"))) if pid != os.getpid() and _orphan(pid)]
    killing.kill_all(found, os.getpid())
    return found


def _orphan(pid: int) -> bool:
    try:
        # Root may read everybody's environment; what other users' runs leave is theirs to end.
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    wanted = f"{VARIABLE}=".encode()
    for word in words:
        if word.startswith(wanted):
            owner = owner_of(word[len(wanted) :].decode(errors="replace"))
            return owner is not None and certainly_dead(owner)
    return False
