"""Every check, in the order in which they are shown. Explicit: a reader sees at once what is looked at."""

from __future__ import annotations

from ondol.doctor.api import Check
from ondol.doctor.checks.contents import Entries, Orphans
from ondol.doctor.checks.machine import BadLibraries, Home, Leftovers, Rooms, Tmpdir, User
from ondol.doctor.checks.places import FileSystem, Reach
from ondol.doctor.checks.sharing import Acls, Modes, Owners, Setgid, WorldWritable
from ondol.doctor.checks.stores import Publishing, Store
from ondol.doctor.checks.tried_out import Clock, Locking, Operations, Space, WritableMount
from ondol.errors import UsageError
from ondol.words import did_you_mean

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
        WritableMount(),
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
        BadLibraries(),
        Rooms(),
    )
}


def choose(only: list[str], skip: list[str]) -> list[Check]:
    """All, or `only` these, without those to `skip`. Raises `UsageError` for a name that we do not know."""
    for name in [*only, *skip]:
        if name not in CHECKS:
            hint = did_you_mean(name, list(CHECKS), "ondol doctor --list")
            raise UsageError(f"there is no check {name!r}", hint=hint)
    return [check for name, check in CHECKS.items() if (not only or name in only) and name not in skip]
