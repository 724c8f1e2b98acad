"""What workers are called where a suite was written for pytest-xdist: gw0, gw1 … Pure.

The name belongs to the slot: a worker that is replaced, after a crash or on purpose, hands it on with its database
and its port, so that names stay unique among the living and below the count. (xdist counts on: gw3 of three workers.)
"""

from __future__ import annotations

from collections.abc import Mapping

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
