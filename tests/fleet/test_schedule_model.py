"""The scheduler against a model: whatever happens in whatever order, nothing is lost, shared or starved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ondol.fleet.messages import Retire, Revoke
from ondol.fleet.model import Action, Device, HandOut, Slot, Unrunnable, Work
from ondol.fleet.schedule import build, infeasible

GIB = 1 << 30


@st.composite
def suites(draw: st.DrawFn, devices: int, memory: bool) -> list[Work]:
    """`devices`: how many the largest node has."""
    count = draw(st.integers(1, 25))
    works = []
    for index in range(count):
        need = draw(st.sampled_from([1, 1, 1, 1, 2, devices]))
        works.append(
            Work(
                index,
                module=draw(st.sampled_from(["a", "b", "c"])),
                estimate=draw(st.sampled_from([None, 0.1, 5.0])),
                devices=min(need, devices),
                group=draw(st.sampled_from(["", "", "", "g", "h"])),
                memory=draw(st.sampled_from([0, 0, 6 * GIB, 10 * GIB])) if memory else 0,
                isolate=draw(st.booleans()),
                runtime=draw(st.sampled_from(["", "", "r", "s"])),
                params=draw(st.sampled_from(["", "", "p"])),
            )
        )
    for index in range(count):
        if draw(st.integers(0, 4)) == 0:
            works[index] = replace(works[index], after=1000 + index)
            works.append(Work(1000 + index, module="prepare", devices=0))
    return works


class SchedulerModel(RuleBasedStateMachine):
    """Plays the agent: carries out actions in any order, at any time, with any outcome."""

    @initialize(
        data=st.data(),
        sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        workers=st.integers(1, 2),
        memory=st.booleans(),
        late=st.booleans(),
    )
    def start(self, data: st.DataObject, sizes: list[int], workers: int, memory: bool, late: bool) -> None:
        places = [(f"n{number}", index) for number, size in enumerate(sizes) for index in range(size)]
        self.devices = [
            Device(f"{node}/d{index}", memory=10 * GIB if memory else 0, node=node) for node, index in places
        ]
        self.works = data.draw(suites(max(sizes), memory))
        assert not infeasible(self.works, {d.name: d for d in self.devices})
        self.slots = {d.name: [Slot(f"{d.name}.{w}", d.name) for w in range(workers)] for d in self.devices}
        cpus = [Slot("cpu0", ""), Slot("cpu1", "")]
        here = [] if late else self.devices
        slots = [slot for device in here for slot in self.slots[device.name]]
        depth = data.draw(st.sampled_from([1, 2, 8]))
        self.scheduler = build(self.works, [*slots, *cpus], here, depth=depth)
        #: Nodes that have not come yet, or do not answer.
        self.missing = sorted({d.node for d in self.devices}) if late else []
        self.scheduler.expecting = bool(self.missing)
        self.by_index = {w.index: w for w in self.works}
        self.queue: dict[str, list[HandOut]] = {}  # slot → handed and not ended; the first is running
        self.requests: list[Revoke | Retire] = []
        self.runs: dict[int, int] = {}
        self.allowed: dict[int, int] = {w.index: 1 for w in self.works}
        self.verdicts: dict[int, str] = {}
        self.started_order: list[int] = []
        self.lacking: dict[int, set[str]] = {}
        self.advance()

    def advance(self) -> None:
        self.take(self.scheduler.step())

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, HandOut):
                self.take_run(action)
            elif isinstance(action, Unrunnable):
                assert self.scheduler.lost, "nothing may be given up before a device is lost"
                self.settle(action.work, "device-lost")
            else:
                self.requests.append(action)

    def take_run(self, run: HandOut) -> None:
        assert run.work not in self.verdicts, "a settled work was started again"
        work = self.by_index[run.work]
        assert len(run.devices) == work.devices
        assert len({name.split("/")[0] for name in run.devices}) <= 1, "a gang was spread over nodes"
        assert not {name.split("/")[0] for name in run.devices} & set(self.missing), "handed to a node that is away"
        assert not set(run.devices) & self.scheduler.lost, "handed to a lost device"
        lacking = self.lacking.get(run.work, set())
        assert not set(run.devices) & lacking or self.could_have(work, lacking) < work.devices, "handed where it is not"
        if work.after is not None:
            assert self.verdicts.get(work.after) == "ok", "ran before its preparation"
        self.queue.setdefault(run.slot, []).append(run)
        self.runs[run.work] = self.runs.get(run.work, 0) + 1
        assert self.runs[run.work] <= self.allowed[run.work], "run more often than recorded attempts allow"

    def could_have(self, work: Work, without: set[str]) -> int:
        """How many devices of one node it could have at once without these."""
        healthy = [d for n, d in self.scheduler.devices.items() if n not in self.scheduler.lost | without]
        return max(Counter(d.node for d in healthy if not d.memory or work.memory <= d.memory).values(), default=0)

    def settle(self, work: int, verdict: str) -> None:
        assert work not in self.verdicts, "a second verdict"
        self.verdicts[work] = verdict
        self.scheduler.settle(work)

    def end(self, slot: str) -> int:
        run = self.queue[slot].pop(0)
        self.started_order.append(run.work)
        self.scheduler.ended(slot, run.work)
        return run.work

    def busy_slots(self) -> list[str]:
        return sorted(s for s, q in self.queue.items() if q)

    @precondition(lambda self: self.busy_slots())
    @rule(data=st.data(), ok=st.integers(0, 5))
    def an_item_ends(self, data: st.DataObject, ok: int) -> None:
        slot = data.draw(st.sampled_from(self.busy_slots()))
        devices = frozenset(self.queue[slot][0].devices)
        work = self.end(slot)
        if ok == 0 and self.allowed[work] < 3:
            self.allowed[work] += 1
            self.scheduler.repeat(work, devices)
        elif ok == 1 and work >= 1000:
            self.settle(work, "prepare failed")
            if self.scheduler.drop(work - 1000):
                self.settle(work - 1000, "error")
        else:
            self.settle(work, "ok")
        self.advance()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def a_request_is_answered(self, data: st.DataObject) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        if isinstance(request, Revoke):
            # A gang's worker may still be on its way, and its only work not begun.
            begun = int(not (request.slot.startswith("gang:") and data.draw(st.booleans())))
            unstarted = [run.work for run in self.queue[request.slot][begun:]]
            del self.queue[request.slot][begun:]
            for work in unstarted:
                self.runs[work] -= 1
            self.scheduler.revoked(request.slot, unstarted)
        else:
            assert isinstance(request, Retire)
            assert not self.queue.get(request.slot), "a busy worker was retired"
            self.scheduler.retired(request.slot)
        self.advance()

    @rule()
    def nothing_happens(self) -> None:
        """Asking again must change nothing."""
        if self.busy_slots() or self.requests:
            assert self.scheduler.step() == []

    @rule(data=st.data(), luck=st.integers(0, 9))
    def a_node_stops_answering(self, data: st.DataObject, luck: int) -> None:
        """Its agent is gone: what ran there is repeated or settled, what was handed over comes back."""
        nodes = sorted({d.node for d in self.devices} - set(self.missing))
        if luck > 1 or not nodes:
            return
        node = data.draw(st.sampled_from(nodes))
        self.missing.append(node)
        self.scheduler.expecting = True
        for device in self.of_node(node):
            self.scheduler.device_away(device.name)
        self.requests = [r for r in self.requests if not r.slot.removeprefix("gang:").startswith(f"{node}/")]
        for slot in [s for s in self.queue if s.removeprefix("gang:").startswith(f"{node}/")]:
            runs = self.queue.pop(slot)
            if runs:
                self.queue[slot] = runs[:1]
                work = self.end(slot)
                self.allowed[work] += 1
                self.scheduler.repeat(work, frozenset(runs[0].devices))
            for run in runs[1:]:
                self.runs[run.work] -= 1
            if slot in self.scheduler.slots:
                self.scheduler.revoked(slot, [run.work for run in runs[1:]])
        for slot in [s for s in self.scheduler.running if s.removeprefix("gang:").startswith(f"{node}/")]:
            self.scheduler.retired(slot)
        for device in self.of_node(node):
            for own in self.slots[device.name]:
                state = self.scheduler.slots[own.name]
                assert not state.handed
                state.warm = state.waiting = False
        self.advance()

    def of_node(self, node: str) -> list[Device]:
        return [d for d in self.devices if d.node == node]

    @precondition(lambda self: self.missing)
    @rule(data=st.data(), comes=st.integers(0, 3))
    def a_missing_node_comes_or_is_given_up(self, data: st.DataObject, comes: int) -> None:
        node = self.missing.pop(data.draw(st.integers(0, len(self.missing) - 1)))
        self.resolve(node, comes=bool(comes))
        self.advance()

    def resolve(self, node: str, *, comes: bool) -> None:
        for device in self.of_node(node):
            if comes:
                self.scheduler.join(device, self.slots[device.name])
            elif device.name in self.scheduler.devices:
                self.take(self.scheduler.device_lost(device.name))
        if not comes:
            self.devices = [d for d in self.devices if d.node != node or d.name in self.scheduler.devices]
        self.scheduler.expecting = bool(self.missing)
        if not self.missing and not self.scheduler.devices:
            self.missing.append(self.never())
        elif not self.missing:
            self.refuse()

    def refuse(self) -> None:
        """As the controller does when all nodes have answered."""
        waiting = [self.by_index[w] for w in self.scheduler.waiting_works()]
        for one in infeasible(waiting, self.scheduler.devices):
            assert self.scheduler.drop(one.work)
            self.settle(one.work, "error")

    def never(self) -> str:
        """Every node was given up before it came: the controller would stop. Here one more is found."""
        device = Device("spare/d0", node="spare")
        most = max(w.devices for w in self.works)
        self.devices = [Device(f"spare/d{n}", node="spare") for n in range(max(1, most))]
        self.slots = {d.name: [Slot(f"{d.name}.0", d.name)] for d in self.devices}
        self.scheduler.expecting = True
        return device.node

    @precondition(lambda self: len(self.scheduler.lost) < len(self.scheduler.devices))
    @rule(data=st.data(), luck=st.integers(0, 9))
    def a_device_is_lost(self, data: st.DataObject, luck: int) -> None:
        if luck:
            return
        healthy = [n for n, d in self.scheduler.devices.items() if n not in self.scheduler.lost]
        healthy = [n for n in healthy if n.split("/")[0] not in self.missing]
        if not healthy:
            return
        device = data.draw(st.sampled_from(healthy))
        self.take(self.scheduler.device_lost(device))
        self.advance()

    @rule(data=st.data(), luck=st.integers(0, 3))
    def devices_of_a_model_have_other_items(self, data: st.DataObject, luck: int) -> None:
        """They lack some works, and would skip others; a group may be torn apart by it."""
        if luck or not self.scheduler.devices:
            return
        alike = frozenset(data.draw(st.lists(st.sampled_from(sorted(self.scheduler.devices)), min_size=1)))
        items = [w.index for w in self.works if w.devices]
        missing, skipped = (data.draw(st.lists(st.sampled_from(items), unique=True)) for _ in range(2))
        for work in missing:
            self.lacking.setdefault(work, set()).update(alike)
        self.take(self.scheduler.differs(alike, missing, skipped))
        self.advance()

    @invariant()
    def every_work_is_in_exactly_one_place(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        s = self.scheduler
        places = [*s.waiting_works(), *s.limbo, *s.done]
        places += [w for state in s.slots.values() for w in state.handed]
        places += [w for g in s.running.values() for w in g.handed]
        assert sorted(places) == sorted(self.by_index)

    @invariant()
    def devices_are_never_shared_beyond_their_slots(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        running = [q[0] for q in self.queue.values() if q]
        handed = [run for q in self.queue.values() for run in q]
        for device in self.devices:
            here = [r for r in running if device.name in r.devices]
            slots = sum(1 for s in self.scheduler.slots.values() if s.slot.device == device.name)
            assert len(here) <= slots
            if any(self.by_index[r.work].devices > 1 for r in here):
                assert len(here) == 1, "a gang shares one of its devices"
            if device.memory and slots > 1:
                share = device.memory // slots
                used = sum(self.by_index[r.work].memory or share for r in handed if device.name in r.devices)
                assert used <= device.memory or len([r for r in handed if device.name in r.devices]) == 1
        groups = [self.by_index[r.work].group for r in running if self.by_index[r.work].group]
        assert len(groups) == len(set(groups)), "two items of one group at once"

    @invariant()
    def something_can_always_happen(self) -> None:
        """No deadlock and no starvation: while anything waits, somebody runs or is asked to make room."""
        if not hasattr(self, "scheduler"):
            return
        if self.scheduler.waiting_works():
            assert self.busy_slots() or self.requests or self.missing, "works wait and nothing is under way"

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(10_000):
            if self.missing:
                self.resolve(self.missing.pop(), comes=True)
                self.advance()
            elif self.requests:
                request = self.requests.pop(0)
                if isinstance(request, Revoke):
                    unstarted = [run.work for run in self.queue[request.slot][1:]]
                    del self.queue[request.slot][1:]
                    for work in unstarted:
                        self.runs[work] -= 1
                    self.scheduler.revoked(request.slot, unstarted)
                else:
                    self.scheduler.retired(request.slot)
            elif self.busy_slots():
                slot = self.busy_slots()[0]
                self.settle(self.end(slot), "ok")
            else:
                break
            self.advance()
        assert self.scheduler.finished
        assert sorted(self.verdicts) == sorted(self.by_index), "an item has no verdict"


TestSchedulerModel = SchedulerModel.TestCase
TestSchedulerModel.settings = settings(
    max_examples=200,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), depth=st.sampled_from([1, 2, 8]))
def test_one_slot_opens_every_runtime_once_in_whatever_order_things_are_prepared(
    data: st.DataObject, depth: int
) -> None:
    count = data.draw(st.integers(1, 12))
    works = [Work(n, "m", runtime=data.draw(st.sampled_from(["", "r", "s"]))) for n in range(count)]
    slow = data.draw(st.sets(st.integers(0, count - 1)))
    works = [replace(work, after=1000 + work.index) if work.index in slow else work for work in works]
    prepares = [Work(1000 + n, "prepare", devices=0) for n in sorted(slow)]
    slots = [Slot("d.0", "d"), Slot("cpu0", ""), Slot("cpu1", "")]
    scheduler = build([*works, *prepares], slots, [Device("d")], depth=depth)
    queues: dict[str, list[int]] = {}
    ran: list[str] = []
    while not scheduler.finished:
        for action in scheduler.step():
            assert isinstance(action, HandOut)
            queues.setdefault(action.slot, []).append(action.work)
        slot = data.draw(st.sampled_from(sorted(name for name, queue in queues.items() if queue)))
        work = queues[slot].pop(0)
        scheduler.ended(slot, work)
        scheduler.settle(work)
        ran += [works[work].runtime] if work < 1000 else []
    opened = [runtime for n, runtime in enumerate(ran) if n == 0 or ran[n - 1] != runtime]
    assert len(ran) == count
    assert len(opened) == len(set(opened))
