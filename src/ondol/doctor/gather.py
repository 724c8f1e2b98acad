"""Which directories to examine, and the first touch of each: in a helper process, because it may never return."""

import errno
import os
import stat
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from ondol.doctor import rights
from ondol.doctor.api import Location, look, place
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY, FirstLook, Machine, Subject
from ondol.doctor.walk import Bounds
from ondol.errors import OndolError
from ondol.host import bounded, identity
from ondol.room import choose
from ondol.store import marker
from ondol.tools import registry, table
from ondol.tools.api import CacheDir, Found, Refused
from ondol.tools.table import Row

#: A file server that needs longer than this for one look holds every job up.
TOUCH_SECONDS = 10.0
#: How many entries of a cache are looked at to tell whose it is.
_SAMPLE = 64


class Offer(NamedTuple):
    """A directory that somebody named, before it was touched."""

    path: str
    role: str
    tool: str = ""
    named: bool = False
    #: A tool's cache that the user's variables put there.
    placed: bool = False


def default_offers(machine: Machine) -> list[Offer]:
    """What a job of this user would use: the store, the tools' caches, home, temporary space, places for a room."""
    env = machine.env
    offers = [Offer(machine.store, STORE, named=machine.store_is_set)]
    for row in registry.everything():
        placed = any(env.get(name) for name in row.moved_by)
        offers.append(Offer(table.default_location(row, env), CACHE, row.name, placed=placed))
    offers.append(Offer(env.get("HOME", ""), HOME))
    offers.append(Offer(env.get("TMPDIR") or "/tmp", TEMPORARY))
    offers += [Offer(candidate.path, ROOM) for candidate in choose.candidates(machine.room_dir, env)]
    return [offer for offer in offers if os.path.isabs(offer.path)]


def subjects(machine: Machine, paths: Sequence[str], bounds: Bounds, seconds: float = TOUCH_SECONDS) -> list[Subject]:
    """Each directory once, with all its roles. Without `paths`, what a job would use."""
    offers = [Offer(os.path.abspath(path), "", named=True) for path in paths] or default_offers(machine)
    found: dict[str, Subject] = {}
    rows = {row.name: row for row in registry.everything()}
    for offer in offers:
        state, role = _touch(machine, offer.path, seconds)
        if not _is_worth_it(offer, state):
            continue
        roles = frozenset([offer.role or role])
        tool = rows.get(offer.tool)
        if roles == {CACHE} and not tool and state.kind == "directory":
            tool = rows.get(_recognise(machine, state.real, seconds))
        known = found.get(state.real)
        if known:
            known.roles |= roles
            known.tool = known.tool or tool
            known.named = known.named or offer.named
        else:
            found[state.real] = Subject(machine, offer.path, roles, state, tool=tool, named=offer.named, bounds=bounds)
    return list(found.values())


def _is_worth_it(offer: Offer, state: FirstLook) -> bool:
    """What is not there and was not asked for is no subject; a home or a TMPDIR that is missing has its own check.

    Nor is the usual cache of a tool that perhaps nobody uses: of twenty below one home, all would say the same.
    """
    return state.kind in ("directory", "hangs") or offer.named or offer.placed or offer.role == STORE


def _touch(machine: Machine, path: str, seconds: float) -> tuple[FirstLook, str]:
    """Its state, and the role that it seems to have."""
    try:
        found: tuple[FirstLook, str] = bounded.call(partial(_look, machine, path), seconds)
    except bounded.TimedOut as error:
        return FirstLook("hangs", path, Location(path), path, error.what), CACHE
    except OndolError as error:
        return FirstLook("unreachable", path, Location(path), path, error.line()), CACHE
    return found


def _look(machine: Machine, path: str, _report: bounded.Report) -> tuple[FirstLook, str]:
    """In the helper process."""
    try:
        real = os.path.realpath(path, strict=True)
        status = os.stat(real)
    except OSError:
        return _where_the_way_ends(path), CACHE
    store = _store_around(real)
    if store:
        real, status = store, os.stat(store)
    if not stat.S_ISDIR(status.st_mode):
        return FirstLook("file", real, place(path, status), path, "it is not a directory"), CACHE
    return FirstLook("directory", real, place(path, status)), _role(machine, real, status.st_mode)


def _store_around(real: str) -> str:
    """The store in whose lanes this lies, or empty: what is right for a plain cache would break it."""
    while real != "/":
        above, name = os.path.split(real)
        if name == marker.LANES and os.path.lexists(os.path.join(above, marker.NAME)):
            return above
        real = above
    return ""


def _where_the_way_ends(path: str) -> FirstLook:
    """Component by component, as the kernel goes: which one stops us, whose it is, and why."""
    here = "/"
    for part in path.split("/"):
        below = os.path.join(here, part)
        try:
            os.stat(below)
        except OSError as error:
            kind = "missing" if error.errno == errno.ENOENT else "unreachable"
            stuck = below if error.errno in (errno.ENOENT, errno.ELOOP) else here
            return FirstLook(kind, path, look(here)._replace(path=path), stuck, os.strerror(error.errno or 0))
        here = below
    return FirstLook("unreachable", path, Location(path), path, "it changed while we looked")


def _role(machine: Machine, real: str, mode: int) -> str:
    """By what is there; a directory of mode 1777 may well be a cache that was made "like /tmp"."""
    if os.path.lexists(os.path.join(real, marker.NAME)):
        return STORE
    known = {"/tmp", "/var/tmp", "/dev/shm", machine.env.get("TMPDIR", "").rstrip("/")}
    return TEMPORARY if real in known and rights.sharing(mode) == rights.STICKY else CACHE


def _recognise(machine: Machine, real: str, seconds: float) -> str:
    """The tool whose entries lie there, or empty; also if that takes too long: a cache of some kind it is anyway."""
    try:
        return str(bounded.call(lambda _report: _tool_of(machine, real), seconds))
    except OndolError:
        return ""


def _tool_of(machine: Machine, real: str) -> str:
    """By where it keeps its cache, or by the look of a sample.

    Only tools whose caches fall into entries can be told by a sample: one that takes a directory whole would take any.
    """
    rows = registry.everything()
    for row in rows:
        location = table.default_location(row, machine.env)
        if os.path.isabs(location) and os.path.realpath(location) == real:
            return row.name
    likeness = {row.name: _likeness(row, real) for row in rows if row.sharing in ("A", "B")}
    best = max(likeness, key=lambda name: likeness[name])
    return best if likeness[best] > 0 else ""


def _likeness(row: Row, real: str) -> int:
    """How many more of its entries than of anything else; broken ones count, they are what we are here for."""
    try:
        sample = list(islice(registry.load(row).scan(CacheDir(real, ours=False), identity.this_host()), _SAMPLE))
    except (OSError, OndolError, ImportError):
        return 0
    strange = sum(isinstance(item, Refused) and item.kind == "unknown" for item in sample)
    whole = sum(isinstance(item, Found) for item in sample)
    return 2 * whole + (len(sample) - strange - whole) - strange
