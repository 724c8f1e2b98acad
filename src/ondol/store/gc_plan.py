"""Which entries to remove: facts and limits in, a list with reasons out. Decides, does nothing.

A store is written by people who do not know each other, so what one of them does must not cost the others their
entries. Space is taken back from whoever holds most, users whom nobody trusts first, and from each of them the least
recently useful. The plan covers everybody's entries, as if all of them cleaned; carried out is the part that whoever
cleans may remove. So a stranger's terabyte, which we may not touch, makes us give up nothing of ours.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from ondol.foreign_text import matches
from ondol.store.api import Stored
from ondol.store.entry import MAX_PACK_BYTES

#: Clocks differ by less. A time further ahead than this was made up, and counts as no time at all.
_AHEAD = 86400.0


class StoreLimits(NamedTuple):
    """What the store may be; None where there is no such limit."""

    max_bytes: int | None = None
    max_age: float | None = None
    min_free: int | None = None
    #: Pattern of scopes that nobody reads for long, and after how long without use their entries go.
    brief: tuple[str, float] | None = None


class Removable(NamedTuple):
    stored: Stored
    #: The later of its publication and its last noted use.
    useful_at: float
    #: Whether whoever cleans may remove it.
    ours: bool = True


class Removal(NamedTuple):
    stored: Stored
    reason: str


def plan(candidates: Iterable[Removable], limits: StoreLimits, now: float, free: int) -> list[Removal]:
    """Whole entries of ours only, and no more than the limits ask for.

    `candidates` are all entries of the store, those included that we may not remove; `free` is what its file system
    has left.
    """
    removals: list[Removal] = []
    kept: list[Removable] = []
    for candidate in candidates:
        candidate = candidate._replace(useful_at=_believable(candidate.useful_at, now))
        reason = _reason(candidate, limits, now)
        if reason:
            free += candidate.stored.weight
            removals += [Removal(candidate.stored, reason)] if candidate.ours else []
        else:
            kept.append(candidate)
    return removals + _for_space(kept, limits, free)


def _believable(moment: float, now: float) -> float:
    """A pack's time is set by its owner: one dated years ahead would otherwise be the most useful of all for ever."""
    return min(moment, now) if moment <= now + _AHEAD else 0.0


def _reason(candidate: Removable, limits: StoreLimits, now: float) -> str:
    """Why an entry goes whatever else is there; empty if nothing speaks against it."""
    if candidate.stored.size > MAX_PACK_BYTES:
        return "larger than any entry can be"
    if limits.max_age is not None and now - candidate.useful_at > limits.max_age:
        return "age"
    pattern, most = limits.brief or ("", 0.0)
    if limits.brief and matches(candidate.stored.address.scope, pattern) and now - candidate.useful_at > most:
        return f"age of {pattern}"
    return ""


def _for_space(candidates: list[Removable], limits: StoreLimits, free: int) -> list[Removal]:
    """Take from whoever holds most, until it is enough."""
    total = sum(candidate.stored.weight for candidate in candidates)
    # By owner and not by lane: anybody can make himself a thousand lanes.
    entries: dict[tuple[bool, int], list[Removable]] = {}
    for candidate in candidates:
        entries.setdefault((candidate.stored.trusted, candidate.stored.owner), []).append(candidate)
    holders: list[tuple[bool, int, int]] = []
    for (trusted, owner), theirs in entries.items():
        theirs.sort(key=lambda one: (one.useful_at, one.stored.address), reverse=True)
        holders.append((trusted, -sum(one.stored.weight for one in theirs), owner))
    heapq.heapify(holders)
    removals: list[Removal] = []
    while holders and (reason := _missing(limits, total, free)):
        trusted, held, owner = heapq.heappop(holders)
        theirs = entries[trusted, owner]
        stored, _, ours = theirs.pop()
        total -= stored.weight
        free += stored.weight
        removals += [Removal(stored, reason)] if ours else []
        if theirs:
            heapq.heappush(holders, (trusted, held + stored.weight, owner))
    return removals


def _missing(limits: StoreLimits, total: int, free: int) -> str:
    if limits.max_bytes is not None and total > limits.max_bytes:
        return "size"
    if limits.min_free is not None and free < limits.min_free:
        return "free space"
    return ""
