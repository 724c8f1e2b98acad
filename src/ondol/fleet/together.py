"""Which items stay together on one worker, in their order. Pure: markers and ids in, names of groups out."""

from __future__ import annotations

from collections.abc import Sequence


def ties(nodeid: str, dist: str, *groups: str) -> list[str]:
    """What binds an item to others: groups that it was marked with, and what pytest-xdist's `--dist` says."""
    found = [f"group {group}" for group in groups if group]
    if dist == "loadfile":
        found.append(f"file {nodeid.split('::')[0]}")
    elif dist == "loadscope":
        # The class, or the module of a function; as xdist, also where a parameter holds the separator.
        found.append(f"scope {nodeid.rsplit('::', 1)[0]}")
    return found


def groups(tied: Sequence[Sequence[str]]) -> list[str]:
    """A name for each item, the same for all that a tie connects, directly or through others; "" for the free."""
    leader: dict[str, str] = {}

    def lead(tie: str) -> str:
        while leader.setdefault(tie, tie) != tie:
            tie = leader[tie]
        return tie

    for own in tied:
        for other in own[1:]:
            leader[lead(other)] = lead(own[0])
    return [lead(own[0]) if own else "" for own in tied]
