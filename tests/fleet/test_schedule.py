"""The scheduler's promises one by one, as small stories."""

from __future__ import annotations

from ondol.fleet.messages import Retire, Revoke
from ondol.fleet.model import Device, HandOut, Slot, Work
from ondol.fleet.schedule import Scheduler, build, infeasible


def devices(count: int, memory: int = 0) -> list[Device]:
    return [Device(f"d{n}", memory=memory) for n in range(count)]


def slots(count: int, workers: int = 1) -> list[Slot]:
    return [Slot(f"d{n}.{w}", f"d{n}") for n in range(count) for w in range(workers)]


def drain(scheduler: Scheduler) -> dict[str, list[int]]:
    """Run everything, one item per slot at a time; returns who ran what in which order."""
    ran: dict[str, list[int]] = {}
    queue: dict[str, list[int]] = {}
    requests: list[object] = []
    for _ in range(1000):
        for action in scheduler.step():
            if isinstance(action, HandOut):
                queue.setdefault(action.slot, []).append(action.work)
            else:
                requests.append(action)
        while requests:
            request = requests.pop()
            if isinstance(request, Revoke):
                scheduler.revoked(request.slot, queue[request.slot][1:])
                del queue[request.slot][1:]
            elif isinstance(request, Retire):
                scheduler.retired(request.slot)
        for slot in sorted(s for s, q in queue.items() if q):
            work = queue[slot].pop(0)
            ran.setdefault(slot, []).append(work)
            scheduler.ended(slot, work)
            scheduler.settle(work)
    assert scheduler.finished
    return ran


def test_one_slot_keeps_the_collected_order() -> None:
    works = [Work(n, module="ba"[n % 2], estimate=float(n)) for n in range(6)]
    assert drain(build(works, slots(1), devices(1))) == {"d0.0": [0, 1, 2, 3, 4, 5]}


def test_a_module_stays_on_one_slot_while_there_are_others_to_take() -> None:
    works = [Work(n, module=f"m{n // 4}") for n in range(16)]
    ran = drain(build(works, slots(2), devices(2)))
    for indices in ran.values():
        modules = [works[i].module for i in indices]
        assert len([m for k, m in enumerate(modules) if k == 0 or modules[k - 1] != m]) == len(set(modules))


def test_the_longest_module_starts_first() -> None:
    works = [Work(0, "short", 0.1), Work(1, "long", 9.0), Work(2, "middle", 1.0)]
    first = [a.work for a in build(works, slots(2), devices(2)).step() if isinstance(a, HandOut)][:2]
    assert first[0] == 1
    assert 0 not in first[:1]


def test_a_chosen_order_is_kept_when_asked() -> None:
    works = [Work(0, "short", 0.1), Work(1, "long", 9.0)]
    runs = [a for a in build(works, slots(2), devices(2), keep_order=True).step() if isinstance(a, HandOut)]
    assert runs[0].work == 0


def test_one_big_module_is_shared_by_idle_slots() -> None:
    works = [Work(n, "only") for n in range(40)]
    ran = drain(build(works, slots(4), devices(4)))
    assert len(ran) == 4
    assert min(len(r) for r in ran.values()) >= 5


def test_the_hint_names_what_follows_and_the_last_item_has_none() -> None:
    scheduler = build([Work(n, "m") for n in range(3)], slots(1), devices(1), depth=3)
    runs = [a for a in scheduler.step() if isinstance(a, HandOut)]
    assert [r.hint for r in runs] == [1, 2, None]
    assert not runs[-1].more


def test_an_item_for_two_devices_waits_for_nobody_forever() -> None:
    works = [Work(n, f"m{n}") for n in range(20)] + [Work(20, "gang", devices=2)]
    scheduler = build(works, slots(2), devices(2))
    first = scheduler.step()
    assert [a.work for a in first if isinstance(a, HandOut)] == [20]
    scheduler.ended("gang:d0+d1", 20)
    scheduler.settle(20)
    scheduler.retired("gang:d0+d1")
    assert len(drain(scheduler)) == 2


def test_a_repeated_gang_drains_and_retires_its_devices_first() -> None:
    works = [Work(n, f"m{n}") for n in range(8)] + [Work(8, "gang", devices=2)]
    scheduler = build(works, slots(2), devices(2))
    scheduler.step()
    scheduler.ended("gang:d0+d1", 8)
    scheduler.retired("gang:d0+d1")
    first = [a for a in scheduler.step() if isinstance(a, HandOut)]
    assert first, "ordinary work fills the gap while the verdict is open"
    scheduler.repeat(8, frozenset({"d0", "d1"}))
    assert scheduler.step() == [], "the devices are reserved: nothing new is handed out"
    for run in first:
        scheduler.ended(run.slot, run.work)
        scheduler.settle(run.work)
    retires = scheduler.step()
    assert all(isinstance(a, Retire) for a in retires)
    assert len(retires) == 2
    for retire in retires:
        assert isinstance(retire, Retire)
        scheduler.retired(retire.slot)
    assert [a.work for a in scheduler.step() if isinstance(a, HandOut)] == [8]


def test_a_group_never_runs_twice_at_once_even_when_repeated() -> None:
    works = [Work(0, "a", group="port"), Work(1, "b", group="port"), Work(2, "c")]
    scheduler = build(works, slots(2), devices(2), depth=1)
    handed = {a.work for a in scheduler.step() if isinstance(a, HandOut)}
    assert len(handed & {0, 1}) == 1


def test_a_repeated_item_goes_to_another_device_when_there_is_one() -> None:
    scheduler = build([Work(0, "a")], slots(2), devices(2))
    (run,) = (a for a in scheduler.step() if isinstance(a, HandOut))
    scheduler.ended(run.slot, 0)
    scheduler.repeat(0, frozenset(run.devices))
    (second,) = (a for a in scheduler.step() if isinstance(a, HandOut))
    assert second.devices != run.devices
    assert second.fresh


def test_each_of_three_retries_is_on_another_device_while_there_is_one() -> None:
    scheduler = build([Work(0, "a")], slots(4), devices(4))
    used: list[str] = []
    for _ in range(5):
        (run,) = (a for a in scheduler.step() if isinstance(a, HandOut))
        used += run.devices
        scheduler.ended(run.slot, 0)
        scheduler.repeat(0, frozenset(used))
    assert len({*used[:4]}) == 4
    assert used[4] in used[:4], "a fifth attempt has no other left, and still runs"


def test_with_one_device_a_repeated_item_still_runs() -> None:
    scheduler = build([Work(0, "a")], slots(1), devices(1))
    scheduler.step()
    scheduler.ended("d0.0", 0)
    scheduler.repeat(0, frozenset({"d0"}))
    assert [a.work for a in scheduler.step() if isinstance(a, HandOut)] == [0]


def test_declared_memory_is_a_budget() -> None:
    works = [Work(0, "a", memory=7), Work(1, "b", memory=7), Work(2, "c", memory=2)]
    scheduler = build(works, slots(1, workers=2), devices(1, memory=10))
    running = [a.work for a in scheduler.step() if isinstance(a, HandOut)]
    assert sum(works[w].memory for w in running) <= 10


def test_what_can_never_run_is_said_before_anything_starts() -> None:
    found = infeasible(
        [Work(0, "a", devices=3), Work(1, "a"), Work(2, "a", memory=11)], {d.name: d for d in devices(2, 10)}
    )
    assert [u.work for u in found] == [0, 2]
    assert "needs 3 devices, there are 2" in found[0].why


def test_when_every_device_is_lost_nothing_is_silently_dropped() -> None:
    scheduler = build([Work(n, f"m{n}") for n in range(5)], slots(1), devices(1))
    scheduler.step()
    scheduler.device_lost("d0")
    scheduler.revoked("d0.0", [1])
    stranded = [a.work for a in scheduler.step()]  # type: ignore[union-attr]
    assert sorted(stranded) == [1, 2, 3, 4]


def test_what_was_handed_to_a_lost_device_and_never_began_is_asked_back() -> None:
    """Its worker may be on the way out, for another runtime or a fresh process: then nothing there will ever run it."""
    scheduler = build([Work(n, f"m{n}") for n in range(2)], slots(2), devices(2), depth=1)
    handed = {action.slot: action.work for action in scheduler.step() if isinstance(action, HandOut)}
    assert scheduler.device_lost("d0") == [Revoke("d0.0")]
    scheduler.revoked("d0.0", [handed["d0.0"]])
    scheduler.ended("d1.0", handed["d1.0"])
    scheduler.settle(handed["d1.0"])
    assert [action.work for action in scheduler.step() if isinstance(action, HandOut)] == [handed["d0.0"]]


def test_a_stop_asks_back_what_never_began() -> None:
    scheduler = build([Work(0, "m")], slots(1), devices(1))
    scheduler.step()
    assert scheduler.stop() == [Revoke("d0.0")]
    scheduler.revoked("d0.0", [0])
    assert scheduler.finished


def test_what_was_given_up_on_a_slot_and_comes_back_from_it_runs_once() -> None:
    """A worker that never started: its item is sent elsewhere at once, and the slot gives it back as well."""
    scheduler = build([Work(n, "m") for n in range(2)], slots(1), devices(1))
    scheduler.step()
    scheduler.device_lost("d0")
    scheduler.ended("d0.0", 0)
    scheduler.repeat(0, frozenset({"d0"}))
    scheduler.revoked("d0.0", [0, 1])
    assert scheduler.waiting_works() == [0, 1]


def end(scheduler: Scheduler, run: HandOut) -> list[object]:
    scheduler.ended(run.slot, run.work)
    scheduler.settle(run.work)
    return list(scheduler.step())


def test_a_worker_waits_for_its_runtime_and_not_with_another() -> None:
    """The second task of the open runtime is being prepared, one of another runtime is ready."""
    works = [Work(0, "m", runtime="r"), Work(1, "m", runtime="r", after=10), Work(2, "m", runtime="s")]
    works.append(Work(10, "prepare", devices=0))
    scheduler = build(works, [*slots(1), Slot("cpu", "")], devices(1))
    handed = [a for a in scheduler.step() if isinstance(a, HandOut)]
    assert [run.work for run in handed] == [10, 0], "the other runtime is not as good"
    prepare, first = handed
    assert (first.hint, first.more) == (None, True), "nothing follows now, and something may"
    assert end(scheduler, first) == []
    second, *_ = end(scheduler, prepare)
    assert isinstance(second, HandOut)
    assert (second.work, second.more) == (1, False), "what follows needs another process"


def test_a_gang_keeps_its_worker_for_the_next_gang_and_gives_its_devices_back() -> None:
    works = [Work(0, "a", devices=2), Work(1, "a", devices=2), Work(2, "b")]
    scheduler = build(works, slots(2), devices(2))
    (first,) = scheduler.step()
    assert isinstance(first, HandOut)
    assert (first.work, first.hint, first.last) == (0, 1, False)
    (second,) = end(scheduler, first)
    assert isinstance(second, HandOut)
    assert (second.slot, second.work, second.fresh, second.hint) == (first.slot, 1, False, None)
    assert end(scheduler, second) == [Retire(first.slot)]
    scheduler.retired(first.slot)
    assert [a.work for a in scheduler.step() if isinstance(a, HandOut)] == [2]


def test_a_gang_whose_device_is_lost_is_asked_back_and_leaves() -> None:
    """Its worker may never start: what was handed to it must not wait there."""
    scheduler = build([Work(0, "a", devices=2)], slots(3), devices(3))
    (run,) = scheduler.step()
    assert isinstance(run, HandOut)
    assert scheduler.device_lost(run.devices[0]) == [Revoke(run.slot)]
    scheduler.revoked(run.slot, [0])
    retire, *_ = scheduler.step()
    assert retire == Retire(run.slot)
    scheduler.revoked(run.slot, [])  # the agent gives back what is lost, and then answers
    assert scheduler.step() == [], "it is told to leave once"
    scheduler.retired(run.slot)
    (again,) = scheduler.step()
    assert isinstance(again, HandOut)
    assert run.devices[0] not in again.devices


def test_who_was_robbed_of_what_must_wait_takes_what_is_repeated_at_once() -> None:
    """A neighbour took the work whose preparation is not done: then there is nothing to wait for any more."""
    works = [Work(0, "a", after=2), Work(1, "b"), Work(2, "prepare", devices=0)]
    scheduler = build(works, [*slots(2), Slot("cpu", "")], devices(2))
    scheduler.pool.clear()
    assert [a.slot for a in scheduler.step() if isinstance(a, HandOut)] == ["cpu"]
    scheduler.pool.append([0])
    scheduler.slots["d0.0"].todo = scheduler.pool[0]
    scheduler.repeat(1, frozenset({"d1"}))
    assert [(a.slot, a.work) for a in scheduler.step() if isinstance(a, HandOut)] == [("d0.0", 1)]
    assert scheduler.step() == []


def test_slots_share_out_what_session_fixtures_are_made_with() -> None:
    works = [Work(n, module="abcd"[n % 4], params="pq"[n // 4]) for n in range(8)]
    ran = drain(build(works, slots(2), devices(2)))
    assert sum(len({works[w].params for w in done}) for done in ran.values()) <= 3


def test_who_helps_out_takes_what_it_has_open_and_runs_that_first() -> None:
    """Slot 0 was handed everything that was left; slot 1 has made what the last of it needs."""
    works = [Work(n, module=f"m{n}", params="two" if n in (4, 5, 6) else "one") for n in range(7)]
    scheduler = build(works, slots(2), devices(2))
    scheduler.pool.clear()
    scheduler.done.add(6)
    busy, idle = scheduler.slots.values()
    busy.handed, busy.last, idle.last = [0, 4, 5, 1, 2, 3], works[3], works[6]
    assert scheduler.step() == [Revoke(busy.slot.name)]
    scheduler.revoked(busy.slot.name, [4, 5, 1, 2, 3])
    scheduler.step()
    assert idle.handed == [4, 5]
    assert [works[w].params for w in busy.handed] == ["one", "one"]


def test_who_had_nothing_to_give_is_asked_again_when_one_of_its_works_has_ended() -> None:
    """Its worker had taken up the next one: asked at once, it would say the same, as often as it is asked."""
    scheduler = build([Work(n, "m") for n in range(3)], slots(2), devices(2), depth=4)
    scheduler.pool.clear()
    scheduler.slots["d0.0"].handed = [0, 1, 2]
    assert scheduler.step() == [Revoke("d0.0")]
    scheduler.revoked("d0.0", [])
    assert scheduler.step() == []
    assert end(scheduler, HandOut("d0.0", 0, ("d0",))) == [Revoke("d0.0")]


def prepared() -> tuple[Scheduler, HandOut, HandOut]:
    works = [Work(0, "m"), Work(1, "m", after=10), Work(10, "prepare", devices=0)]
    scheduler = build(works, [*slots(1), Slot("cpu", "")], devices(1), depth=1)
    prepare, first = (a for a in scheduler.step() if isinstance(a, HandOut))
    return scheduler, prepare, first


def test_a_preparation_that_comes_back_is_not_taken_for_something_that_needs_a_device() -> None:
    """It would wait behind the task that waits for it, for ever."""
    scheduler, prepare, _ = prepared()
    scheduler.vacate(["cpu"])
    assert scheduler.step() == [prepare]


def test_where_no_worker_can_start_to_prepare_the_others_do_it() -> None:
    scheduler, _, first = prepared()
    assert scheduler.slot_lost("cpu") == [Revoke("cpu")]
    scheduler.revoked("cpu", [10])
    assert scheduler.step() == [], "its worker is busy"
    (again,) = end(scheduler, first)
    assert isinstance(again, HandOut)
    assert (again.slot, again.work) == (first.slot, 10)
    (second,) = end(scheduler, again)
    assert isinstance(second, HandOut)
    assert second.work == 1
