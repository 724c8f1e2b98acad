"""What the scheduler knows, and the questions that it answers itself from that. Pure; nothing here changes anything.

Every work is at any time in exactly one place: `pool`, `gangs` or `cpu` (by the devices that it needs), a slot's
`handed`, `limbo` (ended, its verdict not yet decided) or `done`. `tests/fleet/test_schedule_model.py` checks it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ondol.fleet.model import Device, SlotState, Work


def most_together(devices: Iterable[Device]) -> int:
    """How many of them one item could have at once."""
    return max(Counter(device.node for device in devices).values(), default=0)


@dataclass
class Situation:
    """All of it."""

    works: dict[int, Work]
    slots: dict[str, SlotState]
    devices: dict[str, Device]
    depth: int = 2
    retries_first: bool = False
    pool: list[list[int]] = field(default_factory=list)
    gangs: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    limbo: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    avoid: dict[int, frozenset[str]] = field(default_factory=dict)
    #: Work → devices of a model whose own collection does not have it; and those where its markers skip it.
    missing: dict[int, frozenset[str]] = field(default_factory=dict)
    skipped: dict[int, frozenset[str]] = field(default_factory=dict)
    #: Models of nodes that have told, for items with one device and with several.
    compared: set[tuple[str, str, bool]] = field(default_factory=set)
    fresh: set[int] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    #: Devices whose node does not answer now and may come back.
    away: set[str] = field(default_factory=set)
    #: More devices may come, so nothing is impossible yet.
    expecting: bool = False
    #: The next slot of several devices, while these drain; and those that have theirs. One work at a time.
    reserved: SlotState | None = None
    running: dict[str, SlotState] = field(default_factory=dict)
    stopping: bool = False

    # ------------------------------------------------------------------ what is left

    def waiting_works(self) -> list[int]:
        """Everything that was never handed out."""
        lists = [*self.pool, self.gangs, self.cpu]
        lists += [self.reserved.todo] if self.reserved else []
        return sorted(w for line in lists for w in line)

    def everywhere(self) -> dict[str, SlotState]:
        return {**self.slots, **self.running}

    def slots_on(self, device: str) -> list[str]:
        """Where workers may be that hold it."""
        return [name for name, state in self.everywhere().items() if device in state.slot.devices]

    def devices_of(self, slot: str) -> tuple[str, ...]:
        state = self.running.get(slot) or self.slots.get(slot)
        return state.slot.devices if state else ()

    def devices_in(self, node: str) -> list[str]:
        return [name for name, device in self.devices.items() if device.node == node]

    @property
    def finished(self) -> bool:
        if any(g.handed for g in self.running.values()) or any(s.handed or s.waiting for s in self.slots.values()):
            return False
        return not self.limbo and (self.stopping or not self.waiting_works())

    # ------------------------------------------------------------------ what is open, and who could use it

    def _pick(self, works: Sequence[int], last: Work | None, state: SlotState | None = None) -> int | None:
        """The list's order, unless the first must wait: then what can use most of what is open.

        Nothing of another runtime while one of the open runtime waits: that would be closed, and opened again for it.
        """

        def alike(work: int) -> bool:
            return last is None or self.works[work].runtime == last.runtime

        if works and alike(works[0]) and not self._blocked(works[0], state):
            return works[0]
        mine = [work for work in works if alike(work)] or works
        ready = [work for work in mine if not self._blocked(work, state)]
        return min(ready, key=lambda w: self._strange(w, last), default=None)

    def _strange(self, work: int, last: Work | None) -> tuple[bool, bool, bool]:
        """What of that which `last` left open it has no use for: the runtime, session fixtures, module fixtures."""
        need = self.works[work]
        if last is None:
            return False, False, False
        return need.runtime != last.runtime, need.params != last.params, need.module != last.module

    def _wanted(self, need: Work, works: Iterable[int]) -> bool:
        """One of them could use what `need` leaves open."""
        if need.isolate:
            return False
        return any(
            self.works[w].runtime == need.runtime and not self.works[w].isolate and w not in self.fresh for w in works
        )

    def _more_may_come(self, state: SlotState, need: Work) -> bool:
        """Taken from the pool, or asked back from somebody."""
        lines = [*self.pool, *(other.handed[1:] for other in self._device_slots() if other is not state)]
        return any(self._wanted(need, line) for line in lines)

    def _open_elsewhere(self, work: int) -> bool:
        """Another slot has made what it needs: it will be made once less if that slot takes it."""
        need = self.works[work]
        if not (need.runtime or need.params):
            return False
        lasts = [s.last for s in self._device_slots() if s.last]
        return any((last.runtime, last.params) == (need.runtime, need.params) for last in lasts)

    # ------------------------------------------------------------------ what may run where

    def _blocked(self, work: int, state: SlotState | None = None) -> bool:
        """Not yet: its preparation is not done, or its group runs elsewhere."""
        return self._unprepared(work) or self._group_elsewhere(work, state)

    def _unprepared(self, work: int) -> bool:
        after = self.works[work].after
        return after is not None and after not in self.done

    def _nobody_prepares(self) -> bool:
        """No slot is left that does nothing else: then every worker does."""
        return not self.expecting and all(state.down for state in self.slots.values() if not state.slot.device)

    def _group_elsewhere(self, work: int, state: SlotState | None) -> bool:
        group = self.works[work].group
        if not group:
            return False
        others = [w for s in self.everywhere().values() if s is not state for w in s.handed]
        others += self.reserved.todo if self.reserved else []
        return any(self.works[w].group == group for w in others if w != work)

    def _held_by_gang(self, device: str) -> bool:
        gangs = [*self.running.values(), *([self.reserved] if self.reserved else [])]
        return any(device in state.slot.gang for state in gangs)

    def _suits(self, work: int, device: str) -> bool:
        if not self._is_large_enough(work, self.devices[device]):
            return False
        shunned: frozenset[str] = frozenset()
        for devices in (self.missing.get(work), self.skipped.get(work), self.avoid.get(work)):
            if devices and device in (shunned := shunned | devices):
                # A device that is away counts: it comes back or is lost, and until then it is worth waiting for.
                others = [d for n, d in self.devices.items() if n not in self.lost and n not in shunned]
                if self.works[work].devices == 1:  # with `--stepwise` one device has a worker, and nobody is to wait
                    served = {state.slot.device for state in self.slots.values()}
                    others = [device for device in others if device.name in served]
                fitting = most_together(d for d in others if self._is_large_enough(work, d))
                if fitting >= self.works[work].devices:
                    return False
        return True

    def _is_large_enough(self, work: int, device: Device) -> bool:
        return not device.memory or self.works[work].memory <= device.memory

    def _shares_memory(self, device: str) -> bool:
        return bool(self.devices[device].memory) and len(self._of_device(device)) > 1

    def _fits(self, work: int, device: str) -> bool:
        if not self._shares_memory(device):
            return True
        slots = self._of_device(device)
        share = self.devices[device].memory // len(slots)
        in_use = sum(self.works[w].memory or share for s in slots for w in s.handed)
        return in_use + (self.works[work].memory or share) <= self.devices[device].memory

    def _cost(self, work: int) -> float:
        estimate = self.works[work].estimate
        return 1.0 if estimate is None else estimate

    def _device_slots(self) -> list[SlotState]:
        return [s for s in self.slots.values() if s.slot.device]

    def _of_device(self, device: str) -> list[SlotState]:
        return [s for s in self.slots.values() if s.slot.device == device]
