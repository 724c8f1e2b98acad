"""Every check, in the order in which they are shown. Explicit: a reader sees at once what is looked at."""

from __future__ import annotations

from ondol.doctor.api import Check
from ondol.doctor.checks.acls import Acls
from ondol.doctor.checks.clock import Clock
from ondol.doctor.checks.entries import Entries
from ondol.doctor.checks.file_system import FileSystem
from ondol.doctor.checks.home import Home
from ondol.doctor.checks.leftovers import Leftovers
from ondol.doctor.checks.libraries import Libraries
from ondol.doctor.checks.locking import Locking
from ondol.doctor.checks.modes import Modes
from ondol.doctor.checks.mount import Mount
from ondol.doctor.checks.operations import Operations
from ondol.doctor.checks.orphans import Orphans
from ondol.doctor.checks.owners import Owners
from ondol.doctor.checks.publishing import Publishing
from ondol.doctor.checks.reach import Reach
from ondol.doctor.checks.rooms import Rooms
from ondol.doctor.checks.setgid import Setgid
from ondol.doctor.checks.space import Space
from ondol.doctor.checks.store import Store
from ondol.doctor.checks.tmpdir import Tmpdir
from ondol.doctor.checks.user import User
from ondol.doctor.checks.world_writable import WorldWritable
from ondol.errors import UsageError
from ondol.words import closest

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        Reach(),
        Owners(),
        Modes(),
        Setgid(),
        Acls(),
        WorldWritable(),
        Orphans(),
        Entries(),
        Mount(),
        FileSystem(),
        Locking(),
        Operations(),
        Space(),
        Clock(),
        Store(),
        Publishing(),
        Tmpdir(),
        Leftovers(),
        User(),
        Home(),
        Libraries(),
        Rooms(),
    )
}


def choose(only: list[str], skip: list[str]) -> list[Check]:
    """All, or `only` these, without those to `skip`. Raises `UsageError` for a name that we do not know."""
    for name in [*only, *skip]:
        if name not in CHECKS:
            meant = closest(name, list(CHECKS))
            hint = f"did you mean {meant!r}?" if meant else "ondol doctor --list"
            raise UsageError(f"there is no check {name!r}", hint=hint)
    return [check for name, check in CHECKS.items() if (not only or name in only) and name not in skip]
