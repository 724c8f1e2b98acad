"""The timeline is made from the journal alone: what is not written there, nobody can look at afterwards."""

from __future__ import annotations

import json
from pathlib import Path

from ondol.fleet import journal
from ondol.fleet.messages import NodeRoom, WorkerUp
from ondol.fleet.record import Book, RunRecord, load
from ondol.report import timeline
from suites import Result


def test_every_worker_has_a_start_and_an_end(ran: Result) -> None:
    found = timeline.Timeline(ran.record)
    lives = [life for lane in found.lanes for life in lane.generations]
    assert len(lives) == sum(slot.workers for slot in ran.record.slots.values())
    for life in lives:
        assert 0 <= life.asked <= life.up <= life.end <= found.seconds
        assert life.why
    assert any(life.abnormal for life in lives)


def test_every_attempt_is_one_bar_on_its_own_device(ran: Result) -> None:
    found = timeline.Timeline(ran.record)
    bars = [(bar.item, bar.attempt.number) for lane in found.lanes for bar in lane.bars]
    assert sorted(bars) == [(n, a.number) for n, item in enumerate(ran.record.items) for a in item.attempts]
    for lane in found.lanes:
        assert all(bar.attempt.device == lane.device for bar in lane.bars)
        for first, second in zip(lane.bars, lane.bars[1:], strict=False):
            assert first.end <= second.begin
    hang = next(bar for bar in found.bars() if bar.attempt.outcome == "timeout")
    assert [phase.name for phase in hang.phases] == ["setup", "call"]
    assert hang.phases[-1].end == hang.end


def test_the_room_of_this_machine_is_in_the_journal(ran: Result) -> None:
    (room,) = ran.record.rooms
    assert room.node == ""
    assert room.status == 1
    assert room.room["store"].endswith("/store")
    assert ran.record.complete, "what comes after the run's last line does not begin another run"


def test_a_run_after_the_room_was_told_of_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    for name in ("test_a.py::test_first", "test_a.py::test_second"):
        book = Book(path)
        book.write(journal.Run(), journal.Planned([name]), journal.Verdict(0, "passed", False, ""))
        book.write(journal.Over(0, {"passed": 1}), NodeRoom("", 0, {"tools": {}}))
        book.close()
    record = load(path)
    assert [item.nodeid for item in record.items] == ["test_a.py::test_second"]
    assert len(record.rooms) == 1


def test_a_journal_of_an_older_version_can_be_looked_at(ran: Result, tmp_path: Path) -> None:
    """Without the times that were added later: how long a worker took to start, what the room had to say."""
    lines = [json.loads(line) for line in ran.journal.read_text().splitlines()]  # type: ignore[union-attr]
    old = tmp_path / "old.jsonl"
    kept = [{k: v for k, v in line.items() if k != "took"} for line in lines if line["e"] != "room"]
    old.write_text("".join(json.dumps(line) + "\n" for line in kept))
    found = timeline.Timeline(load(old))
    assert all(life.asked == life.up for lane in found.lanes for life in lane.generations)
    assert len(found.bars()) == len(timeline.Timeline(ran.record).bars())


def test_a_worker_tells_how_long_it_took_to_start(ran: Result) -> None:
    ups = [event for _, event in ran.record.story if isinstance(event, WorkerUp)]
    assert ups
    assert all(up.took > 0 for up in ups)


def test_items_that_were_heard_of_at_one_moment_are_drawn_as_long_as_they_took() -> None:
    """Items of a millisecond are reported in batches: their phases tell how long they took."""
    record = RunRecord()
    slots, names = {"gpu0": "gpu0"}, [f"test_a.py::test_{n}" for n in range(3)]
    record.apply(journal.Run(slots=slots), 100.0)
    record.apply(journal.Planned(names), 100.0)
    record.apply(WorkerUp("gpu0", "gpu0-1", 1, 0.5), 101.0)
    for n in range(3):
        record.apply(journal.Start(n, 1, "gpu0", "gpu0-1", "gpu0", False), 103.0)
        phases = [{"when": "setup", "duration": 0.1}, {"when": "call", "duration": 0.4}]
        record.apply(journal.End(n, 1, "passed", "", "", 0.5, phases), 103.0)
    bars = timeline.Timeline(record).lanes[0].bars
    assert [(round(bar.begin, 3), round(bar.end, 3)) for bar in bars] == [(1.5, 2.0), (2.0, 2.5), (2.5, 3.0)]
    assert [round(phase.end - phase.begin, 3) for bar in bars for phase in bar.phases] == [0.1, 0.4] * 3
