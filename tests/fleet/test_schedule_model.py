"""The scheduler against a model: whatever happens in whatever order, nothing is lost, shared or starved."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ondol.fleet.model import Action, Device, Retire, Revoke, Run, Slot, Unrunnable, Work
from ondol.fleet.schedule import build, infeasible

GIB = 1 << 30


@st.composite
def suites(draw: st.DrawFn, devices: int, memory: bool) -> list[Work]:
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
            )
        )
    for index in range(count):
        if draw(st.integers(0, 4)) == 0:
            works[index] = Work(**{**works[index].__dict__, "after": 1000 + index})
            works.append(Work(1000 + index, module="prepare", devices=0))
    return works


class SchedulerModel(RuleBasedStateMachine):
    """Plays the agent: carries out actions in any order, at any time, with any outcome."""

    @initialize(data=st.data(), devices=st.integers(1, 4), workers=st.integers(1, 2), memory=st.booleans())
    def start(self, data: st.DataObject, devices: int, workers: int, memory: bool) -> None:
        names = [f"d{n}" for n in range(devices)]
        self.devices = [Device(n, memory=10 * GIB if memory else 0) for n in names]
        self.works = data.draw(suites(devices, memory))
        assert not infeasible(self.works, {d.name: d for d in self.devices})
        slots = [Slot(f"{n}.{w}", n) for n in names for w in range(workers)]
        slots += [Slot("cpu0", ""), Slot("cpu1", "")]
        self.scheduler = build(self.works, slots, self.devices, depth=data.draw(st.sampled_from([1, 2, 8])))
        self.one_slot = len(names) * workers == 1
        self.by_index = {w.index: w for w in self.works}
        self.queue: dict[str, list[Run]] = {}  # slot → handed and not ended; the first is running
        self.requests: list[Action] = []
        self.runs: dict[int, int] = {}
        self.allowed: dict[int, int] = {w.index: 1 for w in self.works}
        self.verdicts: dict[int, str] = {}
        self.started_order: list[int] = []
        self.gang_slots: set[str] = set()
        self.advance()

    def advance(self) -> None:
        self.take(self.scheduler.step())

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Run):
                self.take_run(action)
            elif isinstance(action, Unrunnable):
                assert self.scheduler.lost, "nothing may be given up before a device is lost"
                self.settle(action.work, "device-lost")
            else:
                self.requests.append(action)

    def take_run(self, run: Run) -> None:
        assert run.work not in self.verdicts, "a settled work was started again"
        work = self.by_index[run.work]
        assert len(run.devices) == work.devices
        assert not set(run.devices) & self.scheduler.lost, "handed to a lost device"
        if work.after is not None:
            assert self.verdicts.get(work.after) == "ok", "ran before its preparation"
        self.queue.setdefault(run.slot, []).append(run)
        if work.devices > 1:
            self.gang_slots.add(run.slot)
        self.runs[run.work] = self.runs.get(run.work, 0) + 1
        assert self.runs[run.work] <= self.allowed[run.work], "run more often than recorded attempts allow"

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
        if slot in self.gang_slots:
            self.gang_slots.discard(slot)
            self.scheduler.retired(slot)
        self.advance()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def a_request_is_answered(self, data: st.DataObject) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        if isinstance(request, Revoke):
            unstarted = [run.work for run in self.queue[request.slot][1:]]
            del self.queue[request.slot][1:]
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

    @precondition(lambda self: len(self.scheduler.lost) < len(self.devices))
    @rule(data=st.data(), luck=st.integers(0, 9))
    def a_device_is_lost(self, data: st.DataObject, luck: int) -> None:
        if luck:
            return
        healthy = [d.name for d in self.devices if d.name not in self.scheduler.lost]
        device = data.draw(st.sampled_from(healthy))
        self.take(self.scheduler.device_lost(device))
        self.advance()

    @invariant()
    def every_work_is_in_exactly_one_place(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        s = self.scheduler
        places = [*s.waiting_works(), *s.limbo, *s.done]
        places += [w for state in s.slots.values() for w in state.handed]
        places += [g.work for g in s.running.values() if g.running]
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
            assert self.busy_slots() or self.requests, "works wait and nothing is under way"

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(10_000):
            if self.requests:
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
                if slot in self.gang_slots:
                    self.gang_slots.discard(slot)
                    self.scheduler.retired(slot)
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
