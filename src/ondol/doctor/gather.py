"""Which directories to examine, and the first touch of each: in a helper process, because it may never return."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from functools import partial
from itertools import islice

from ondol.doctor import rights
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY, Machine, State, Subject
from ondol.doctor.walk import Bounds
from ondol.errors import OndolError
from ondol.host import bounded, identity
from ondol.light import Any, Record
from ondol.room import choose
from ondol.store import marker
from ondol.tools.api import CacheDir, Refused, Tool
from ondol.tools.registry import TOOLS

#: A file server that needs longer than this for one look holds every job up.
TOUCH_SECONDS = 10.0
#: How many entries of a cache are looked at to tell whose it is.
_SAMPLE = 64


class Offer(Record):
    """A directory that somebody named, before it was touched."""

    path: str
    role: str
    tool: str = ""
    named: bool = False


def default_offers(machine: Machine) -> list[Offer]:
    """What a job of this user would use: the store, the tools' caches, home, temporary space, places for a room."""
    env = machine.env
    offers = [Offer(machine.store, STORE, named=machine.store_is_set)]
    offers += [Offer(tool.default_location(env), CACHE, tool.name) for tool in TOOLS.values()]
    offers.append(Offer(env.get("HOME", ""), HOME))
    offers.append(Offer(env.get("TMPDIR") or "/tmp", TEMPORARY))
    offers += [Offer(candidate.path, ROOM) for candidate in choose.candidates(machine.room_dir, env)]
    return [offer for offer in offers if os.path.isabs(offer.path)]


def subjects(machine: Machine, paths: Sequence[str], bounds: Bounds, seconds: float = TOUCH_SECONDS) -> list[Subject]:
    """Each directory once, with all its roles. Without `paths`, what a job would use."""
    offers = [Offer(os.path.abspath(path), "", named=True) for path in paths] or default_offers(machine)
    found: dict[str, Subject] = {}
    for offer in offers:
        state, traits = _touch(machine, offer.path, seconds)
        if not _is_worth_it(offer, state):
            continue
        roles = frozenset([offer.role or traits.get("role", CACHE)])
        tool = TOOLS.get(offer.tool or traits.get("tool", "")) if CACHE in roles else None
        known = found.get(state.real)
        if known:
            known.roles |= roles
            known.tool = known.tool or tool
            known.named = known.named or offer.named
        else:
            found[state.real] = Subject(machine, offer.path, roles, state, tool=tool, named=offer.named, bounds=bounds)
    return list(found.values())


def _is_worth_it(offer: Offer, state: State) -> bool:
    """What is not there and was not asked for is no subject; a home or a TMPDIR that is missing has its own check."""
    return state.kind in ("directory", "hangs") or offer.named or offer.role in (STORE, CACHE)


def _touch(machine: Machine, path: str, seconds: float) -> tuple[State, dict[str, Any]]:
    try:
        answer = bounded.call(partial(_look, machine, path), seconds)
    except bounded.TimedOut as error:
        return State("hangs", path, path, error.what), {}
    except OndolError as error:
        return State("unreachable", path, path, error.line()), {}
    return State(*answer["state"]), answer


def _look(machine: Machine, path: str, _report: bounded.Report) -> dict[str, Any]:
    """In the helper process."""
    try:
        real = os.path.realpath(path, strict=True)
        status = os.stat(real)
    except OSError:
        return {"state": _where_the_way_ends(path)}
    if not stat.S_ISDIR(status.st_mode):
        return {"state": ("file", real, path, "it is not a directory", status.st_uid, status.st_gid, status.st_mode)}
    state = ("directory", real, "", "", status.st_uid, status.st_gid, status.st_mode)
    role = _role(machine, real, status.st_mode)
    tool = _recognise(machine, real) if role == CACHE else ""
    return {"state": state, "role": role, "tool": tool}


def _where_the_way_ends(path: str) -> tuple[Any, ...]:
    """Component by component, as the kernel goes: which one stops us, whose it is, and why."""
    here = "/"
    for part in path.split("/"):
        below = os.path.join(here, part)
        try:
            os.stat(below)
        except OSError as error:
            kind = "missing" if error.errno == errno.ENOENT else "unreachable"
            stuck = below if error.errno in (errno.ENOENT, errno.ELOOP) else here
            status = _stat(here)
            return (kind, path, stuck, os.strerror(error.errno or 0), *status)
        here = below
    return ("unreachable", path, path, "it changed while we looked", *_stat("/"))


def _stat(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1, 0
    return status.st_uid, status.st_gid, status.st_mode


def _role(machine: Machine, real: str, mode: int) -> str:
    """By what is there; a directory of mode 1777 may well be a cache that was made "like /tmp"."""
    if os.path.lexists(os.path.join(real, marker.NAME)):
        return STORE
    known = {"/tmp", "/var/tmp", "/dev/shm", machine.env.get("TMPDIR", "").rstrip("/")}
    return TEMPORARY if real in known and rights.sharing(mode) == rights.STICKY else CACHE


def _recognise(machine: Machine, real: str) -> str:
    """The tool whose entries lie there: where it keeps its cache, or by the look of a sample.

    Only tools whose caches fall into entries can be told by a sample: one that takes a directory whole would take any.
    """
    for tool in TOOLS.values():
        location = tool.default_location(machine.env)
        if os.path.isabs(location) and os.path.realpath(location) == real:
            return tool.name
    for tool in TOOLS.values():
        if tool.sharing in ("A", "B") and _looks_like(tool, real):
            return tool.name
    return ""


def _looks_like(tool: Tool, real: str) -> bool:
    """More of its entries than of anything else; broken ones count, they are what we are here for."""
    try:
        sample = list(islice(tool.scan(CacheDir(real, ours=False), identity.this_host()), _SAMPLE))
    except (OSError, OndolError):
        return False
    strange = sum(isinstance(item, Refused) and item.kind == "unknown" for item in sample)
    return len(sample) - strange > strange
