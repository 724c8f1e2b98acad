"""Three sentences above the timeline say why the run took so long: a wrong one sends people to the wrong place."""

from __future__ import annotations

from pathlib import Path

from ondol.fleet import journal, messages
from ondol.fleet.record import RunRecord
from ondol.report import timeline, why_slow


class Told:
    """A run made of events at chosen times."""

    def __init__(self, devices: int, items: int, collected: float = 0.1) -> None:
        self.record = RunRecord()
        slots = {f"gpu{n}": f"gpu{n}" for n in range(devices)}
        self.at(0.0, journal.Collecting("test_a.py"))
        self.at(collected, journal.Run(slots=slots), journal.Planned([f"test_a.py::test_{n}" for n in range(items)]))
        self.attempts: dict[int, int] = {}

    def at(self, when: float, *events: journal.Event) -> Told:
        for event in events:
            self.record.apply(event, 1000.0 + when)
        return self

    def up(self, when: float, slot: str, worker: str, took: float = 0.05) -> Told:
        return self.at(when, messages.WorkerUp(slot, worker, 1, took))

    def ran(
        self,
        begin: float,
        end: float,
        item: int,
        slot: str,
        outcome: str = "passed",
        setup: float = 0.0,
        worker: str = "",
    ) -> Told:
        number = self.attempts[item] = self.attempts.get(item, 0) + 1
        phases = [{"when": "setup", "duration": setup}, {"when": "call", "duration": end - begin - setup}]
        self.at(begin, journal.Start(item, number, slot, worker or f"{slot}-1", slot, False))
        return self.at(end, journal.End(item, number, outcome, "", "", end - begin, phases))

    def over(self, when: float) -> list[why_slow.Reason]:
        self.at(when, journal.Over(0, {}))
        return why_slow.reasons(timeline.Timeline(self.record), self.record)


def test_collecting_for_most_of_the_run_is_the_first_reason() -> None:
    first, *_ = Told(1, 1, collected=60.0).ran(62.0, 70.0, 0, "gpu0").over(70.1)
    assert first.kind == "start"
    assert first.text == "62.0 s passed before the first test began, 60.0 s of them collecting."


def test_one_test_alone_at_the_end_is_named() -> None:
    told = Told(4, 5)
    for n in range(4):
        told.ran(0.2, 10.0, n, f"gpu{n}")
    first, *_ = told.ran(10.0, 50.0, 4, "gpu2").over(50.1)
    assert (first.kind, first.item) == ("tail", 4)
    assert first.text == "For 40.0 s at the end only gpu2 had work: test_a.py::test_4."


def test_one_device_has_no_tail() -> None:
    assert [r.kind for r in Told(1, 1).ran(0.2, 50.0, 0, "gpu0").over(50.1)] == ["work"]


def test_a_deadline_that_kept_one_of_two_devices_counts_half() -> None:
    told = Told(2, 3).ran(0.2, 30.0, 0, "gpu0", "timeout").ran(0.2, 30.0, 1, "gpu1").ran(30.0, 30.1, 2, "gpu1")
    first, *_ = told.over(30.2)
    assert (first.kind, first.item, round(first.seconds, 1)) == ("deadline", 0, 14.9)
    assert first.text == "1 attempt ran into a deadline and took 29.8 s: test_a.py::test_0."


def test_what_was_made_twice_is_counted_once() -> None:
    told = Told(1, 1).ran(0.2, 10.0, 0, "gpu0", "crashed").ran(10.0, 20.0, 0, "gpu0")
    first, *_ = told.over(20.1)
    assert (first.kind, round(first.seconds, 1)) == ("again", 10.0)


def test_fixtures_that_cost_more_than_their_tests() -> None:
    first, *_ = Told(1, 1).ran(0.2, 10.0, 0, "gpu0", setup=9.0).over(10.1)
    assert first.kind == "fixtures"
    assert first.text == "Set-up and teardown of tests took 9.00 s, 9.00 s of them in test_a.py::test_0."


def test_a_device_that_was_set_aside_early() -> None:
    told = Told(2, 2).ran(0.2, 5.0, 0, "gpu0").at(5.0, journal.Quarantine("gpu1", "two crashes", [0]))
    reasons = told.ran(5.0, 100.0, 1, "gpu0").over(100.1)
    aside = next(r for r in reasons if r.kind == "lost")
    assert aside.text == "Device gpu1 was quarantined 5.00 s into the run, and the others did its work: two crashes."
    assert round(aside.seconds) == 48


def test_replacing_workers_is_counted_without_their_first_start() -> None:
    told = Told(1, 2).up(5.0, "gpu0", "gpu0-1", took=4.0).ran(5.0, 6.0, 0, "gpu0")
    told.at(6.0, messages.WorkerEnded("gpu0", "gpu0-1", "killed by SIGSEGV", True, 1))
    told.up(26.0, "gpu0", "gpu0-2", took=20.0).ran(26.0, 27.0, 1, "gpu0", worker="gpu0-2")
    first, *_ = told.over(27.1)
    assert first.kind == "workers"
    assert first.seconds == 20.0
    assert first.text.startswith("1 worker had to be replaced, 1 of them after a crash or a kill")


def test_compiling_is_what_the_rooms_say_it_cost() -> None:
    tools = {"triton": {"name": "triton", "new": 7, "seconds_new": 40.0}}
    told = Told(2, 2).ran(0.2, 30.0, 0, "gpu0").ran(0.2, 30.0, 1, "gpu1")
    told.at(30.0, messages.NodeRoom("", 0, {"tools": tools}))
    first, *_ = told.over(30.1)
    assert (first.kind, first.seconds) == ("compiling", 20.0)
    assert first.text == "40.0 s were spent compiling what was in no cache: 7 entries of triton."


def test_there_are_three_at_most_and_nothing_small() -> None:
    told = Told(2, 4, collected=20.0).ran(20.0, 40.0, 0, "gpu0", "timeout", setup=5.0)
    told.ran(20.0, 41.0, 1, "gpu1", setup=15.0).ran(41.0, 90.0, 2, "gpu1")
    reasons = told.over(100.0)
    assert [r.kind for r in reasons] == ["tail", "start", "deadline"]
    assert all(r.seconds >= why_slow.LEAST * 100 for r in reasons)


def test_a_run_of_nothing_has_no_reason(tmp_path: Path) -> None:
    assert why_slow.reasons(timeline.Timeline(RunRecord()), RunRecord()) == []
