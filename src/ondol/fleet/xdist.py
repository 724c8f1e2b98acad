"""What a suite that was written for pytest-xdist counts on: what workers are called, which items stay together. Pure.

A name (gw0, gw1 …) belongs to the slot: a worker that is replaced, after a crash or on purpose, hands it on with its
database and its port, so that names stay unique among the living and below the count. (xdist counts on: gw3 of three.)
"""

from collections.abc import Mapping, Sequence

from ondol.fleet.model import SlotState

WORKER, COUNT, UID = "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"


def name(slot: str, slots: Mapping[str, SlotState]) -> str:
    """Slots without a device prepare tasks and keep their own name."""
    if slot.startswith("gang:"):
        # Its devices' own workers have left: the first one's name is free.
        device = slot.removeprefix("gang:").split("+")[0]
        slot = next(own for own, state in slots.items() if state.slot.device == device)
    numbered = _numbered(slots)
    return f"gw{numbered.index(slot)}" if slot in numbered else slot


def environment(slot: str, slots: Mapping[str, SlotState], uid: str) -> dict[str, str]:
    return {WORKER: name(slot, slots), COUNT: str(len(_numbered(slots))), UID: uid}


def _numbered(slots: Mapping[str, SlotState]) -> list[str]:
    return [name for name, state in slots.items() if state.slot.device]


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
