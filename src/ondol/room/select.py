"""Which stored entries to fill a room with. What is not filled costs nothing, so there is a budget. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ondol.store.api import Stored
from ondol.store.entry import Address

#: So many entries are unpacked in a moment: before the command starts, whoever may need them.
AT_ONCE = 256


def part(wanted: list[list[Stored]], uses: Mapping[Address, float]) -> tuple[list[list[Stored]], list[list[Stored]]]:
    """(before the command starts, beside it), the most recently useful first."""
    if len(wanted) <= AT_ONCE:
        return wanted, []

    ordered = _by_use(wanted, uses)
    return ordered[:AT_ONCE], ordered[AT_ONCE:]


def _by_use(entries: list[list[Stored]], uses: Mapping[Address, float]) -> list[list[Stored]]:
    return sorted(entries, key=lambda e: max(max(s.published, uses.get(s.address, 0.0)) for s in e), reverse=True)


class Selection(NamedTuple):
    #: For each entry the packs that claim to be it, in the order in which to try them.
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
    by_entry: dict[tuple[str, str], list[Stored]] = {}
    accepted: dict[str, bool] = {}  # thousands of entries have a handful of fingerprints, and a verdict may read files
    for stored in index:
        fingerprint = stored.address.fingerprint
        if fingerprint not in accepted:
            accepted[fingerprint] = accepts(fingerprint)
        if accepted[fingerprint]:
            key = version_of(stored.address.key) if version_of else stored.address.key
            by_entry.setdefault((fingerprint, key), []).append(stored)
    entries = list(by_entry.values())
    if version_of:
        for versions in entries:
            versions.sort(key=lambda stored: stored.published, reverse=True)
    if sum(entry[0].size for entry in entries) <= budget:
        return Selection(entries, 0)
    taken = 0
    chosen: list[list[Stored]] = []
    for entry in _by_use(entries, uses):
        if taken + entry[0].size > budget:
            continue
        taken += entry[0].size
        chosen.append(entry)
    return Selection(chosen, len(entries) - len(chosen))
