"""Healing a cache: find what is bad by the cache's own evidence, set exactly that aside, say what was done.

Called after a command failed with a fault that `explain.match.judge` blames on the cache, by `ondol guard` and whatever
else runs commands on caches. Looking takes long and disturbs nobody, so it is done first; then the bad entries are
renamed, a few milliseconds, while the tool's own processes are kept out.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ondol.errors import OndolError
from ondol.guard.healer import BadEntry, Healer
from ondol.guard.lock import CacheLock
from ondol.guard.lock_parts import flock
from ondol.guard.pip import Pip
from ondol.guard.set_aside import Identity, SetAside, identity_of
from ondol.guard.tool_cache import ToolCache
from ondol.guard.uv import Uv
from ondol.host import bounded, files, filesystem, identity
from ondol.tools import table

#: The families of caches that can be healed, by the name that signatures use. Of the tools, those whose files we can
#: tell whole from torn; the others have a protocol of their own.
_ALL: list[Healer] = [Uv(), Pip(), *(ToolCache(row) for row in table.ROWS if row.sharing != "E")]
HEALERS: dict[str, Healer] = {healer.name: healer for healer in _ALL}

#: How long to wait for the tool's own processes that run outside of any guard.
TOOL_WAIT = 30.0
#: What looking through a cache may take: a large one on a network has a hundred gigabytes.
_LOOKING, _LOOKING_MEMORY = 3600.0, 2 << 30
_PAUSE = 0.05
Progress = Callable[[str, int, int], None]


class Taken(NamedTuple):
    """One bad entry, and what became of it."""

    #: Relative to the cache.
    path: str
    why: str
    #: Where it is now. Empty if it is where it was.
    kept: str = ""
    #: Why it could not be taken.
    trouble: str = ""


class HealingReport(NamedTuple):
    family: str
    cache: str
    host: str
    taken: tuple[Taken, ...] = ()
    #: Where the entries are kept.
    folder: str = ""
    seconds: float = 0.0
    #: Why nothing was looked at.
    why_not: str = ""

    @property
    def mended(self) -> bool:
        return any(one.kept for one in self.taken)

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "taken": [one._asdict() for one in self.taken], "mended": self.mended}


class Unlocked:
    """A cache that needs no lock: nobody else has it, or a torn file leaves it by one rename that nobody waits for."""

    def __init__(self, cache: str) -> None:
        self.cache = filesystem.real(cache)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        yield


def heal(family: str, lock: CacheLock | Unlocked, progress: Progress, *, whole: bool = False) -> HealingReport:
    """Heal the cache of this lock, which is held. Never raises for what it finds there.

    `whole`: the user allows that everything goes where nothing finer is known, or nothing bad is found.
    """
    report = HealingReport(family, lock.cache, identity.hostname())
    healer = HEALERS.get(family)
    if healer and not healer.recognises(lock.cache):
        return report._replace(why_not=f"{lock.cache} is not a cache of {family}")
    if not healer and not whole:
        return report._replace(why_not=f"nothing is known that finds bad entries in a cache of {family}")
    started = time.monotonic()
    with lock.exclusively():
        try:
            found = _examine(healer, lock.cache, progress) if healer else []
        except OndolError as error:
            return report._replace(why_not=error.line(), seconds=time.monotonic() - started)
        if not found and whole:
            found = _everything(lock.cache, healer)
        taken, folder = _set_aside(found, healer, report) if found else ((), "")
    return report._replace(taken=taken, folder=folder, seconds=time.monotonic() - started)


def family_of(cache: str) -> str:
    """The family that a directory looks like; empty if none."""
    return next((healer.name for healer in HEALERS.values() if healer.recognises(cache)), "")


#: What is bad, and what its paths were when that was found out.
_Found = list[tuple[BadEntry, dict[str, Identity | None]]]


def _examine(healer: Healer, cache: str, progress: Progress) -> _Found:
    """In a helper with bounds: others may have put anything into the cache. Raises `OndolError` if it ends early."""
    looking = f"looking for what is bad in {cache}"

    def work(report: bounded.Report) -> _Found:
        return [_with_identity(bad) for bad in healer.examine(cache, report)]

    found: _Found = bounded.call(work, _LOOKING, lambda done, total: progress(looking, done, total), _LOOKING_MEMORY)
    return found


def _everything(cache: str, healer: Healer | None) -> _Found:
    """If the whole cache must go: its contents. The directory stays, and with it the lock on it."""
    why, stay = "the whole cache is set aside, as --heal whole allows", healer.not_entries if healer else ()
    try:
        names = [name for name in sorted(os.listdir(cache)) if name not in stay and not name.startswith(".ondol-")]
    except OSError:
        return []
    return [_with_identity(BadEntry(os.path.join(cache, name), why)) for name in names]


def _with_identity(bad: BadEntry) -> tuple[BadEntry, dict[str, Identity | None]]:
    return bad, {path: identity_of(path) for path in (bad.path, *bad.pointers)}


def _set_aside(found: _Found, healer: Healer | None, report: HealingReport) -> tuple[tuple[Taken, ...], str]:
    try:
        place = SetAside(report.cache, time.time())
    except OSError as error:
        return tuple(Taken(bad.path, bad.why, trouble=error.strerror or str(error)) for bad, _ in found), ""
    try:
        with _tool_kept_out(healer, report.cache) as alone:
            taken = tuple(_take(place, bad, known, report.cache, alone=alone) for bad, known in found)
        if place.folder:
            place.explain(_note(report, taken))
            place.clean()
        return taken, place.folder
    finally:
        place.close()


def _take(place: SetAside, bad: BadEntry, known: dict[str, Identity | None], cache: str, *, alone: bool) -> Taken:
    name = os.path.relpath(bad.path, cache)
    # Somebody may be reading it who was led there before. Without the names nobody else will be; that is enough.
    paths = [*bad.pointers, bad.path] if alone or not bad.pointers else list(bad.pointers)
    kept, trouble = "", ""
    for path in paths:
        try:
            kept = place.take(path, known[path]) or kept
        except OSError as error:
            trouble = trouble or f"{os.path.relpath(path, cache)}: {error.strerror or error}"
    return Taken(name, bad.why, kept, trouble)


@contextmanager
def _tool_kept_out(healer: Healer | None, cache: str) -> Iterator[bool]:
    """Hold the tool's own lock, so that none of its processes is using what we move. False if they keep it."""
    if not healer or not healer.own_lock:
        yield True
        return
    try:
        fd = os.open(os.path.join(cache, healer.own_lock), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield True  # a version that has no such lock
        return
    with files.opened(fd):
        yield _wait_for(fd)


def _wait_for(fd: int) -> bool:
    deadline = time.monotonic() + TOOL_WAIT
    try:
        while not flock(fd, False):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
    except OSError:
        return True  # then the tool has none either
    return True


def _note(report: HealingReport, taken: tuple[Taken, ...]) -> str:
    lines = [
        f"Set aside by `ondol guard` on {report.host}, {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())},",
        f"from {report.cache}, because these entries were found to be bad:",
        "",
        *(f"  {one.path}: {one.why}" for one in taken if one.kept),
        "",
        "Nothing needs them any more; delete this folder when you like (Ondol does so after two weeks).",
        "To put an entry back, move it to the same place in the cache.",
    ]
    return "\n".join(lines) + "\n"
