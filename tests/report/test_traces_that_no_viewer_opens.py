"""A trace is read by other people's viewers: what they refuse, or draw in the wrong place, is as good as no trace."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ondol.cli import report as command
from ondol.fleet.record import RunRecord, load
from ondol.report import run_perfetto
from suites import Result

#: ph → the fields that the format demands of it, beside name, ph, ts, pid and tid.
DEMANDED = {"X": {"dur"}, "M": {"args"}, "i": {"s"}, "s": {"id", "cat"}, "f": {"id", "cat", "bp"}}


def events_of(text: str) -> list[dict[str, Any]]:
    document = json.loads(text)
    assert set(document) == {"traceEvents", "displayTimeUnit"}
    return document["traceEvents"]


def assert_nested(spans: list[dict[str, Any]]) -> None:
    """Spans of one thread lie inside each other or apart; half over each other a viewer draws nonsense."""
    open_until: list[tuple[int, str]] = []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        while open_until and open_until[-1][0] <= span["ts"]:
            open_until.pop()
        end = span["ts"] + span["dur"]
        assert not open_until or end <= open_until[-1][0], f"{span} sticks out of {open_until[-1]}"
        open_until.append((end, span["name"]))


def check(events: list[dict[str, Any]]) -> None:
    for event in events:
        assert {"name", "ph", "ts", "pid", "tid", *DEMANDED[event["ph"]]} <= set(event), event
        assert isinstance(event["name"], str)
        numbers = [event[name] for name in ("ts", "pid", "tid", "dur") if name in event]
        assert all(isinstance(number, int) and number >= 0 for number in numbers), event
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"} <= named
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for spans in threads.values():
        assert_nested(spans)
    arrows = {ph: sorted(e["id"] for e in events if e["ph"] == ph) for ph in "sf"}
    assert arrows["s"] == arrows["f"]


def test_a_real_run_with_crashes_is_a_valid_trace(ran: Result, place: Path) -> None:
    events = events_of((place / "trace.json").read_text())
    check(events)
    record = ran.record
    attempts = [e for e in events if e.get("cat") == "attempt"]
    assert len(attempts) == sum(len(item.attempts) for item in record.items)
    assert {e["name"] for e in attempts} == {item.nodeid for item in record.items}
    assert sum(e["ph"] == "s" for e in events) == sum(len(item.attempts) - 1 for item in record.items)
    assert {e["name"] for e in events if e.get("cat") == "phase"} == {"setup", "call", "teardown"}
    assert any(e["args"]["abnormal"] for e in events if e.get("cat") == "worker" and "abnormal" in e["args"])


def test_a_run_that_was_killed_anywhere_is_a_valid_trace(ran: Result, tmp_path: Path) -> None:
    lines = ran.journal.read_text().splitlines(keepends=True)  # type: ignore[union-attr]
    for length in range(2, len(lines)):
        cut = tmp_path / "cut.jsonl"
        cut.write_text("".join(lines[:length]))
        check(events_of(run_perfetto.render(load(cut))))


def test_the_command_makes_the_same_trace_again(ran: Result, place: Path, tmp_path: Path) -> None:
    status = command.main([str(ran.journal), "--perfetto", str(tmp_path / "again.json")])
    assert status == 1
    assert (tmp_path / "again.json").read_text() == (place / "trace.json").read_text()


def test_a_run_of_nothing_is_an_empty_trace() -> None:
    check(events_of(run_perfetto.render(RunRecord())))
