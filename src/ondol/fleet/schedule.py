"""Who runs what, where, next. Pure: facts go in, actions come out; no clock, no I/O.

What waits lies in one pool of lists, a module each, for its fixtures; the longest come first. A slot works through one
list at a time; with none left it takes half of somebody else's. Nobody is handed more than its share of all, so that
what is left at the end is for all. Items that need several devices go before everything else and have their devices
reserved while these drain, so that nothing can starve them, and one reservation is open at a time, so that two of them
can never each hold what the other needs. With a single slot the order is the collected one, runtime by runtime.

What a worker has open (its runtime, session and module fixtures) stays open while anything that could still come to it
may want it: it waits for a task of its runtime that is being prepared, and a gang keeps its worker for the next gang.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ondol.fleet.messages import Retire, Revoke
from ondol.fleet.model import Action, Device, HandOut, Slot, SlotState, Unrunnable, Work
from ondol.fleet.situation import Situation, most_together
from ondol.fleet.verdict import Verdict


def infeasible(works: Iterable[Work], devices: Mapping[str, Device]) -> list[Unrunnable]:
    """What this set of devices can never run; said before anything starts."""
    largest = max((d.memory or float("inf") for d in devices.values()), default=0)
    together = most_together(devices.values())
    where = " in one node" if len({d.node for d in devices.values()}) > 1 else ""
    found = []
    for work in works:
        if work.devices > together:
            why = f"needs {work.devices} devices, there are {together}{where}"
            found.append(Unrunnable(work.index, Verdict.ERROR, why))
        elif work.devices and work.memory > largest:
            why = f"declares {work.memory} bytes of device memory, the largest has {largest}"
            found.append(Unrunnable(work.index, Verdict.ERROR, why))
    return found


@dataclass
class Scheduler(Situation):
    """Told what happened; `step()` returns what to do now."""

    # ------------------------------------------------------------------ what happened

    def ended(self, slot: str, work: int) -> None:
        """The attempt is over; `settle` or `repeat` follows."""
        state = self.everywhere()[slot]
        state.handed.remove(work)
        state.drained = False
        self.limbo.add(work)

    def settle(self, work: int) -> None:
        """Its verdict is final."""
        self.limbo.discard(work)
        self.done.add(work)

    def repeat(self, work: int, avoid: frozenset[str]) -> None:
        """One more attempt, in a fresh process, elsewhere where possible."""
        self.limbo.discard(work)
        self.avoid[work] = avoid
        self.fresh.add(work)
        self._give_back([work])

    def revoked(self, slot: str, works: Sequence[int]) -> None:
        """These had not started and are ours again: the answer to `Revoke`, or the end of a device."""
        state = self.everywhere().get(slot)
        if state is None:
            return  # several devices, which were given back since
        # What was given up in the meantime, because no worker could start there, has gone elsewhere.
        works = [w for w in works if w in state.handed]
        state.waiting, state.drained = False, not works
        state.handed = [w for w in state.handed if w not in works]
        self._give_back(works)

    def retired(self, slot: str) -> None:
        """The slot's worker is gone, and with it its hold on the device."""
        if slot in self.running:
            del self.running[slot]
            return
        state = self.slots[slot]
        state.warm = state.waiting = False
        state.last = None

    def device_lost(self, device: str) -> list[Action]:
        """Nothing runs there any more. What was running there ends by `ended`; what waited moves on."""
        self.lost.add(device)
        self.away.discard(device)
        return self._take_down(device)

    def device_away(self, device: str) -> list[Action]:
        """As `device_lost`, for a device that may `join` again."""
        self.away.add(device)
        return self._take_down(device)

    def join(self, device: Device, slots: Iterable[Slot]) -> None:
        """A device is here, for the first time or again, with workers that have run nothing."""
        if device.name in self.lost:
            return
        self.away.discard(device.name)
        self.devices[device.name] = device
        for slot in slots:
            self.join_slot(slot)
        if self.missing:  # it may have what was to run where it is not
            self._take_back(frozenset(self.devices))

    def join_slot(self, slot: Slot) -> None:
        state = self.slots.setdefault(slot.name, SlotState(slot))
        state.down = state.warm = state.waiting = False

    def slot_away(self, slot: str) -> None:
        """For slots without a device."""
        self.slots[slot].down = True

    def slot_lost(self, slot: str) -> list[Action]:
        """As `slot_away`, while somebody is there who can give back what it was handed."""
        self.slot_away(slot)
        return self._ask_back([slot])

    def differs(self, devices: frozenset[str], missing: Iterable[int], skipped: Iterable[int]) -> list[Action]:
        """Devices of one model lack some works and skip others: these run elsewhere, while there is such a place.

        What the devices were handed and have not begun is asked for.
        """
        for table, works in ((self.missing, missing), (self.skipped, skipped)):
            table.update({work: table.get(work, frozenset()) | devices for work in works})
        self._take_back(devices)
        for state in self.slots.values():
            state.todo = []  # whoever has a module open takes it again
        self.pool = self._units([work for unit in self.pool for work in unit])
        return self._ask_back(n for n, state in self.everywhere().items() if devices.intersection(state.slot.devices))

    def _take_down(self, device: str) -> list[Action]:
        self._take_back(frozenset({device}))
        for state in self._of_device(device):
            state.down = True
        return self._ask_back(self.slots_on(device))

    def _take_back(self, devices: frozenset[str]) -> None:
        """What only waited for these may go anywhere again."""
        if self.reserved and devices.intersection(self.reserved.slot.gang):
            self._give_back(self.reserved.todo)
            self.reserved = None
        for state in self._device_slots():
            if state.slot.device in devices:
                state.todo = []

    def _ask_back(self, slots: Iterable[str]) -> list[Action]:
        """What has not begun; also a single one: the worker that it waits for may never come."""
        states = self.everywhere()
        asked = [name for name in slots if states[name].handed and not states[name].waiting]
        for name in asked:
            states[name].waiting = True
        return [Revoke(name) for name in asked]

    def vacate(self, slots: Iterable[str]) -> None:
        """Their workers are gone, and what ran there has ended: what had not begun is ours again."""
        for name, state in self.everywhere().items():
            if name in slots:
                self.revoked(name, list(state.handed))
                self.running.pop(name, None)
                state.warm = state.waiting = False

    def drop(self, work: int) -> bool:
        """Never run it (its preparation failed). False when it was not waiting any more."""
        if work not in self.waiting_works():
            return False
        for line in (*self.pool, self.gangs, self.cpu):
            if work in line:
                line.remove(work)
        if self.reserved and work in self.reserved.todo:
            self.reserved = None
        self.pool = [unit for unit in self.pool if unit]
        self.limbo.add(work)
        return True

    def stop(self) -> list[Action]:
        """Hand out nothing more; take back what has not started."""
        self.stopping = True
        return self._ask_back(self.everywhere())

    # ------------------------------------------------------------------ what to do now

    def step(self) -> list[Action]:
        """Everything that can be started or must be asked for now; asking twice gives nothing new."""
        actions: list[Action] = []
        while not self.stopping:
            more = self._pass()
            actions += more
            if not more:
                break
        return actions

    def _pass(self) -> list[Action]:
        actions: list[Action] = self._strand()
        for running in self.running.values():
            actions += self._go_on(running)
        actions += self._advance_gang()
        for state in self.slots.values():
            if not state.slot.device or self._nobody_prepares():
                actions += self._feed_cpu(state)
        # Nobody steals before everybody had a chance at the pool; and who was robbed may have something else to do.
        for idle_may_steal in (False, True, False):
            for state in sorted(self._device_slots(), key=lambda state: len(state.handed)):
                actions += self._feed(state, idle_may_steal)
        return actions

    def _strand(self) -> list[Action]:
        """Works that no remaining device can ever take, after a loss."""
        if not self.lost or self.expecting:
            return []
        healthy = [device for name, device in self.devices.items() if name not in self.lost]
        actions: list[Action] = []
        for work in self.waiting_works():
            need = self.works[work]
            fitting = most_together(d for d in healthy if self._is_large_enough(work, d))
            if fitting < (need.devices or self._nobody_prepares()):
                self.drop(work)
                why = f"needs {need.devices} healthy device(s), {fitting} left" if healthy else "no healthy device left"
                actions.append(Unrunnable(work, Verdict.DEVICE_LOST, why))
        return actions

    # ------------------------------------------------------------------ gangs

    def _advance_gang(self) -> list[Action]:
        if self.reserved is None:
            self.reserved = self._reserve()
        gang = self.reserved
        if gang is None:
            return []
        slots = [s for name in gang.slot.gang for s in self._of_device(name)]
        if any(s.handed or s.waiting for s in slots):
            return []
        warm = [s for s in slots if s.warm]
        for state in warm:
            state.waiting = True
        if warm:
            return [Retire(state.slot.name) for state in warm]
        self.reserved = None
        self.running[gang.slot.name] = gang
        return [self._hand(gang, gang.todo.pop())]

    def _go_on(self, gang: SlotState) -> list[Action]:
        """The next work for the same devices, in the same worker; without one they are given back."""
        if not gang.free:
            return []
        fitting = self._fitting(gang)
        work = self._pick(fitting, gang.last, gang)
        if work is not None:
            self.gangs.remove(work)
            return [self._hand(gang, work)]
        if any(self._unprepared(w) for w in fitting) and not self._nobody_prepares():
            return []
        gang.down = True  # whatever is still answered, nothing more is handed to it
        return [Retire(gang.slot.name)]

    def _fitting(self, gang: SlotState) -> list[int]:
        devices = gang.slot.gang
        if (self.lost | self.away).intersection(devices):
            return []
        same_size = [w for w in self.gangs if self.works[w].devices == len(devices)]
        return [w for w in same_size if all(self._suits(w, device) for device in devices)]

    def _reserve(self) -> SlotState | None:
        taken = {name for gang in self.running.values() for name in gang.slot.gang} | self.lost | self.away
        for work in self.gangs:
            free = [n for n in self.devices if n not in taken and self._suits(work, n)]
            chosen = [] if self._blocked(work) else self._together(work, free)
            if chosen:
                self.gangs.remove(work)
                devices = tuple(sorted(chosen, key=list(self.devices).index))
                return SlotState(Slot("gang:" + "+".join(devices), "", devices), todo=[work])
        return None

    def _together(self, work: int, free: list[str]) -> list[str]:
        """As many as it needs, of one node; empty when no node has them."""

        def burden(name: str) -> tuple[bool, int]:
            # Those with the least in hand drain first; devices that saw it fail come last.
            return name in self.avoid.get(work, ()), sum(len(s.handed) for s in self._of_device(name))

        need = self.works[work].devices
        by_node: dict[str, list[str]] = {}
        for name in sorted(free, key=burden):
            by_node.setdefault(self.devices[name].node, []).append(name)
        fitting = [names[:need] for names in by_node.values() if len(names) >= need]
        return min(fitting, key=lambda names: [burden(name) for name in reversed(names)], default=[])

    # ------------------------------------------------------------------ slots

    def _feed_cpu(self, state: SlotState) -> list[Action]:
        if not state.free or self._held_by_gang(state.slot.device):
            return []
        for work in self.cpu:
            if not self._blocked(work):
                self.cpu.remove(work)
                return [self._hand(state, work)]
        return []

    def _feed(self, state: SlotState, may_steal: bool) -> list[Action]:
        """Fill up to its share, but only when half of that is gone: fewer, larger messages."""
        actions: list[Action] = []
        if state.down or state.waiting or len(state.handed) > self.depth // 2:
            return actions
        most = self._most_for(state.slot.device)
        while len(state.handed) < most and not state.waiting:
            if self.retries_first or not state.todo:
                state.todo = self._claim(state)
            if not state.todo and may_steal and state.free:
                actions += self._steal(state)
            work = self._pick(state.todo, state.last, state)
            if work is None or not self._fits(work, state.slot.device):
                break
            state.todo.remove(work)
            if not state.todo:
                self.pool.remove([])
            actions.append(self._hand(state, work))
        return actions

    def _most_for(self, device: str) -> int:
        """How many works one of its slots may hold: no more than its share of all, so that what is left is for all."""
        if self._held_by_gang(device):
            return 0
        if self._shares_memory(device):
            return 1
        held = [len(state.handed) for state in self._device_slots() if not state.down]
        share = math.ceil((sum(held) + sum(map(len, self.pool))) / len(held))
        return min(self.depth, max(2, share))  # with what follows at hand nobody waits for a message

    def _hand(self, state: SlotState, work: int) -> HandOut:
        need = self.works[work]
        is_fresh = need.isolate or work in self.fresh
        state.handed.append(work)
        state.warm = True
        state.last = None if need.isolate else need
        if not need.devices:
            return HandOut(state.slot.name, work, (), is_fresh)
        if not (state.todo or need.isolate or state.slot.gang):
            state.todo = self._claim(state)
        line = self._fitting(state) if state.slot.gang else state.todo
        if work in self.fresh:
            # What failed while it was closed must be closed in this attempt too, or it looks as if it had passed.
            return HandOut(state.slot.name, work, state.slot.devices, is_fresh, need.isolate)
        follows = self._pick(line, state.last, state)
        hint = follows if follows is not None and self._wanted(need, [follows]) else None
        more = hint is None and (self._wanted(need, line) if state.slot.gang else self._more_may_come(state, need))
        return HandOut(state.slot.name, work, state.slot.devices, is_fresh, need.isolate, hint, more)

    def _claim(self, state: SlotState) -> list[int]:
        """The list of the pool that it works through next: nobody else's, and with most use for what it has open."""
        device, best = state.slot.device, None
        others = [other.todo for other in self._device_slots() if other is not state]
        for unit in self.pool:
            first = unit[0]
            repeated = first in self.fresh
            if repeated and state.handed and not self.retries_first:
                continue  # a fresh process ends the warm one: it waits for a slot with nothing else to do
            amiss = (
                repeated is not self.retries_first,
                *self._strange(first, state.last)[:2],
                self._unprepared(first),
                self._open_elsewhere(first),
            )
            if (best and amiss >= best[0]) or any(unit is other for other in others):
                continue
            if all(self._suits(work, device) for work in unit) and not self._group_elsewhere(first, state):
                best = amiss, unit
                if not any(amiss):
                    break
        return best[1] if best else []

    def _steal(self, thief: SlotState) -> list[Action]:
        """Half of the longest list; if all lists are empty, ask for what is handed out and not started."""
        device, others = thief.slot.device, [s for s in self._device_slots() if s is not thief]

        def movable(works: Sequence[int]) -> bool:
            return all(not self.works[w].group and self._suits(w, device) for w in works)

        lists = [s.todo for s in others if s.todo and movable(s.todo[len(s.todo) // 2 :])]
        if lists:
            # What the thief has open need not be opened once more.
            longest = max(lists, key=lambda t: (not any(self._strange(t[-1], thief.last)[:2]), sum(map(self._cost, t))))
            half = len(longest) // 2
            thief.todo = longest[half:]
            del longest[half:]
            self.pool = [unit for unit in self.pool if unit] + [thief.todo]
            return []
        asked = sum(1 for s in others if s.waiting and s.handed)
        idle = sum(1 for s in self._device_slots() if s.free and not s.todo)
        queued = [s for s in others if len(s.handed) > 1 and not (s.waiting or s.drained) and movable(s.handed[1:])]
        if not queued or asked >= idle:
            return []
        victim = max(queued, key=lambda s: sum(self._cost(w) for w in s.handed[1:]))
        victim.waiting = True
        return [Revoke(victim.slot.name)]

    def _give_back(self, works: Sequence[int]) -> None:
        """To the front of those that wait."""
        self.cpu = [w for w in works if not self.works[w].devices] + self.cpu
        self.gangs = [w for w in works if self.works[w].devices > 1] + self.gangs
        self.pool = self._units([w for w in works if self.works[w].devices == 1]) + self.pool

    def _units(self, works: Sequence[int]) -> list[list[int]]:
        """By module, in order of first appearance; the works of one group are one unit wherever they were found.

        What only some models run is apart: the others take the rest. So is what is repeated.
        """
        units: dict[tuple[object, ...], list[int]] = {}
        for index in works:
            work = self.works[index]
            tie = ("group", work.group) if work.group else (work.runtime, work.params, work.module)
            apart = index if index in self.fresh else None
            units.setdefault((tie, self.missing.get(index), self.skipped.get(index), apart), []).append(index)
        return list(units.values())


def build(
    works: Sequence[Work],
    slots: Sequence[Slot],
    devices: Sequence[Device],
    *,
    keep_order: bool = False,
    retries_first: bool = False,
    depth: int = 2,
) -> Scheduler:
    """The scheduler at the start of a run. `keep_order`: somebody (`--ff`) chose the order on purpose."""
    known = {work.index: work for work in works}
    scheduler = Scheduler(
        works=known,
        slots={slot.name: SlotState(slot) for slot in slots},
        devices={device.name: device for device in devices},
        retries_first=retries_first,
        depth=depth,
        cpu=[w.index for w in works if w.devices == 0],
        gangs=[w.index for w in works if w.devices > 1],
    )
    single = [w for w in works if w.devices == 1]
    if sum(1 for slot in slots if slot.device) == 1:
        # Runtimes that took turns would be opened anew each time.
        turns = list(dict.fromkeys(w.runtime for w in single))
        single.sort(key=lambda w: turns.index(w.runtime))
        scheduler.pool = [[w.index for w in single]] if single else []
        return scheduler
    scheduler.pool = scheduler._units([w.index for w in single])
    if not keep_order:
        scheduler.pool.sort(key=lambda unit: -sum(scheduler._cost(w) for w in unit))
        scheduler.gangs.sort(key=lambda w: (-known[w].devices, -scheduler._cost(w)))
    return scheduler
