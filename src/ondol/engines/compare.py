"""Did a node collect what the controller collected? Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def digest(ids: Sequence[str]) -> str:
    """Of the collected ids, in their order."""
    return hashlib.sha256("\n".join(ids).encode(errors="surrogatepass")).hexdigest()


def can_be_ordered(ours: Sequence[str], theirs: Sequence[str], *, chosen: bool = False) -> bool:
    """The same items, each once: a plugin shuffled them, and they can be put in our order. `chosen`: ours are a part of
    what was collected here, so there may be more of them there.
    """
    once = len(ours) == len(set(ours)) and len(theirs) == len(set(theirs))
    return once and (set(ours) <= set(theirs) if chosen else set(ours) == set(theirs))


def first_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """In words, where the two lists part."""
    counts = f"it collected {len(theirs)} items, the controller {len(ours)}"
    for number, (own, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if own != other:
            return f"{counts}; the first difference is item {number}: {other} there, {own} here"
    longer, where = (theirs, "there") if len(theirs) > len(ours) else (ours, "here")
    shorter = min(len(ours), len(theirs))
    return f"{counts}; the first difference is item {shorter + 1}: {longer[shorter]} only {where}"
