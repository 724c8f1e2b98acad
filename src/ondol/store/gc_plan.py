"""Which entries to remove: facts and limits in, a list with reasons out. Decides, does nothing."""

from __future__ import annotations

from collections.abc import Iterable

from ondol.light import Record
from ondol.store.api import Stored


class Limits(Record):
    """What the store may be; None where there is no such limit."""

    max_bytes: int | None = None
    max_age: float | None = None
    min_free: int | None = None


class Candidate(Record):
    stored: Stored
    #: The later of its publication and its last noted use.
    useful_at: float


class Removal(Record):
    stored: Stored
    reason: str


def plan(candidates: Iterable[Candidate], limits: Limits, now: float, total: int, free: int) -> list[Removal]:
    """Whole entries only, the least recently useful first, and no more than the limits ask for.

    `total` is the size of the whole store, what we may not delete included; `free` what its file system has left.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate.useful_at, candidate.stored.address))
    removals: list[Removal] = []
    for stored, useful_at in ordered:
        reason = _reason(limits, now - useful_at, total, free)
        if not reason:
            continue
        removals.append(Removal(stored, reason))
        total -= stored.size
        free += stored.size
    return removals


def _reason(limits: Limits, age: float, total: int, free: int) -> str:
    if limits.max_age is not None and age > limits.max_age:
        return "age"
    if limits.max_bytes is not None and total > limits.max_bytes:
        return "size"
    if limits.min_free is not None and free < limits.min_free:
        return "free space"
    return ""
