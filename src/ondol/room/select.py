"""Which stored entries to fill a room with. What is not filled costs nothing, so there is a budget. Pure."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from ondol.store.api import Stored
from ondol.store.entry import Address

#: As many entries as are unpacked in a moment: they are filled before the command starts, the others beside it.
AT_ONCE = 256


class Selection(NamedTuple):
    #: For each entry the packs that claim to be it, in the order in which to try them; the most recently useful first.
    wanted: list[list[Stored]]
    #: Entries left out for the budget's sake.
    left_out: int


def select(
    index: Iterable[Stored],
    accepts: Callable[[str], bool],
    uses: Mapping[Address, float],
    budget: int,
    version_of: Callable[[str], str] | None = None,
) -> Selection:
    """Entries that can work here, the most recently useful first, until their packs exceed `budget` bytes.

    `version_of`: keys that it maps to one value cannot lie in one cache together; they take turns, the newest first, as
    if they were copies of one entry.
    """

    def useful_at(stored: Stored) -> float:
        return max(stored.published, uses.get(stored.address, 0.0))

    by_entry: dict[tuple[str, str], list[Stored]] = {}
    fits = lru_cache(None)(accepts)  # thousands of entries have a handful of fingerprints, and a verdict may read files
    for stored in index:
        _, _, fingerprint, key = stored.address
        if fits(fingerprint):
            by_entry.setdefault((fingerprint, version_of(key) if version_of else key), []).append(stored)
    entries = list(by_entry.values())
    if version_of:
        for versions in entries:
            versions.sort(key=lambda stored: stored.published, reverse=True)
    taken = 0
    chosen: list[list[Stored]] = []
    for entry in sorted(entries, key=lambda some: max(map(useful_at, some)), reverse=True):
        if taken + entry[0].size <= budget:
            taken += entry[0].size
            chosen.append(entry)
    return Selection(chosen, len(entries) - len(chosen))
