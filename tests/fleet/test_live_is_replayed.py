"""A run that is told in two ways drifts: what it printed while it went on and what its journal says later must be the
same, byte for byte.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet import journal
from ondol.fleet.record import Book, RunRecord, load
from ondol.foreign_text import printable
from ondol.report import run_json, run_junit, run_markdown, run_summary

pytestmark = pytest.mark.warm_pytest

#: Writes what this very process knows at its end; the journal is only read afterwards.
DUMPS = """
    import pathlib, pytest
    from ondol.report import run_json, run_junit, run_markdown
    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(config):
        runner = config.pluginmanager.get_plugin("ondol-runner")
        if runner is not None:
            for name, render in (("xml", run_junit), ("json", run_json), ("md", run_markdown)):
                pathlib.Path("live." + name).write_text(render.render(runner.book.record), errors="surrogateescape")
"""

MIXED = """
    import os, pytest, threading, time
    def test_pass(record_property): record_property("answer", 42)
    def test_fail(): print("ünïcode \\x1b[31m"); assert 0, "a | b"
    def test_crash(): print("before"); os.abort()
    def test_skip(): pytest.skip("why & how")
    @pytest.mark.xfail(reason="known")
    def test_xfail(): assert 0
    @pytest.mark.ondol(timeout=1)
    def test_hang():
        while True: time.sleep(0.01)
    def test_leaves():
        keep = threading.Event()
        threading.Thread(target=keep.wait, daemon=True, name="poller").start()
    @pytest.mark.ondol(devices=9)
    def test_too_large(): pass
    @pytest.fixture(scope="module")
    def wide():
        yield
        raise RuntimeError("late")
    def test_late(wide): pass
    def test_flaky():
        if not os.path.exists("was"):
            open("was", "w").close()
            os.abort()
"""

TASKS = """
[runtime.r]
class = "rt:Own"
[[task]]
name = "good"
runtime = "r"
[[task]]
name = "unprepared"
runtime = "r"
"""


@pytest.mark.fault
@pytest.mark.parametrize("devices", ["sim:1", "sim:2"])
def test_everything_that_a_run_told_is_told_again_by_its_journal(suite, devices, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "step.md"))
    suite.write(
        conftest=DUMPS,
        test_m=MIXED,
        rt="""
        class Own:
            def prepare(self, task):
                assert task.name == "good"
                return 1
            def run(self, task): pass
        """,
    )
    (suite.path / "t.ondol.toml").write_text(TASKS)
    probe = "--ondol-probe=sh -c 'test $ONDOL_DEVICE != sim1 || { echo melted; exit 1; }'"
    result = suite.pytest(probe, "--ondol-grace=0.2", "--ondol-log-dir=test_m.py/no", devices=devices)
    record = load(result.journal)
    assert set(record.counts()) >= {"passed", "failed", "crashed", "timeout", "error", "skipped", "xfailed"}
    assert any(item.flaky for item in record.items)
    told = [printable(line) for line in run_summary.lines(record, result.journal)]
    after = result.output.partition(" ondol -")[2].splitlines()[1:]
    assert after[: len(told)] == told
    assert any(line.startswith("note: --log-dir: no more logs") for line in told)
    assert any("(thread: poller)" in line for line in told)
    assert "\n".join(run_summary.tasks(record)) in result.output
    assert (suite.path / "step.md").read_text().rstrip() == run_markdown.render(record).rstrip()
    for name, render in (("xml", run_junit), ("json", run_json), ("md", run_markdown)):
        assert (suite.path / f"live.{name}").read_text() == render.render(record), name


def test_what_was_left_behind_is_told_again(suite) -> None:
    suite.write(test_m="import threading\ndef test_t(): threading.Thread(target=threading.Event().wait, daemon=True).start()\n")  # fmt: skip
    result = suite.pytest()
    told = [line for line in run_summary.lines(load(result.journal), result.journal) if "left behind" in line]
    assert told == [line for line in result.output.splitlines() if "left behind" in line]
    assert len(told) == 1


@pytest.mark.parametrize("how", ["--maxfail=1", "--ondol-session-timeout=2"])
def test_a_run_that_was_stopped_is_told_again_as_it_stopped(suite, how) -> None:
    slow = "import time\ndef test_slow(): time.sleep(60)\n" if "timeout" in how else ""
    suite.write(conftest=DUMPS, test_a=slow + "def test_a(): assert 0\n", test_b="def test_b(): assert 0\n")
    result = suite.pytest(how, "--ondol-judge=off", "--ondol-grace=0.2")
    record = load(result.journal)
    assert record.stopped is not None
    assert record.counts()["not-run"] >= 1
    assert (suite.path / "live.json").read_text() == run_json.render(record)


# ---------------------------------------------------------------------- journals of earlier versions

#: As version 1.0 wrote them, one of each kind that has changed since.
OLD: list[dict[str, Any]] = [
    {"e": "run", "devices": [{"name": "d0", "kind": "sim", "visible": "0"}], "mode": "forked"},
    {"e": "planned", "items": ["t.py::a", "t.py::b"]},
    {"e": "node-up", "node": "n1", "devices": ["n1/d0"], "host": "h", "waited": 0.5, "collected": 1.0, "mode": "forked"},
    {"e": "worker", "slot": "d0", "worker": "w1", "pid": 7},
    {"e": "start", "item": 0, "attempt": 1, "slot": "d0", "worker": "w1", "device": "d0", "warm": False},
    {"e": "end", "item": 0, "attempt": 1, "outcome": "passed", "cause": "", "reason": "", "seconds": 0.25,
     "phases": [{"when": "call", "outcome": "passed", "duration": 0.25}]},
    {"e": "verdict", "item": 0, "verdict": "passed", "flaky": False, "why": ""},
    {"e": "probe", "device": "d0", "fault": "melted"},
    {"e": "quarantine", "device": "d0", "why": "health probe failed", "items": []},
    {"e": "node-lost", "node": "n1", "why": "gone", "how": "crashed"},
    {"e": "node-out", "node": "n1", "why": "gone", "log": ""},
    {"e": "worker-ended", "slot": "d0", "worker": "w1", "why": "", "abnormal": False, "ran": 1},
    {"e": "room", "node": "n1", "status": 0, "room": {"hits": 3}},
    {"e": "something-newer", "x": 1},
    {"e": "verdict", "item": 1, "verdict": "not-run", "flaky": False, "why": "never started"},
    {"e": "over", "status": 121, "counts": {"passed": 1, "not-run": 1}},
]  # fmt: skip


def test_a_journal_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    lines: list[dict[str, Any]] = [{"t": 100.0 + number, **line} for number, line in enumerate(OLD)]
    lines[2]["python"] = "3.12"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = load(path)
    assert (record.complete, record.status, record.counts()) == (True, 121, {"passed": 1, "not-run": 1})
    assert [type(event).__name__ for event in record.nodes] == ["NodeUp", "NodeLost", "NodeOut"]
    assert json.loads(run_json.render(record))["nodes"][0]["devices"] == ["n1/d0"]
    assert json.loads(run_json.render(record))["rooms"] == [{"node": "n1", "status": 0, "hits": 3}]
    assert "workers: 1, forked" in run_summary.lines(record, path)
    assert "health probe failed" in run_junit.render(record)


def test_a_second_run_in_the_same_file_is_told_alone(tmp_path: Path) -> None:
    """`--journal FILE` twice: the first run's devices, nodes and faults are not the second one's."""
    path = tmp_path / "j"
    for name in ("a", "b"):
        book = Book(path)
        book.write(journal.CollectionFault(f"{name}.py", "SIGSEGV"), journal.Run(), journal.Planned([name]))
        book.write(journal.Quarantine(name, "melted", []), journal.Verdict(0, "passed", False, ""))
        book.write(journal.Over(0, {}))
        book.close()
        record = load(path)
        assert [fault.file for fault in record.fatal] == [f"{name}.py"]
        assert [one.device for one in record.quarantines] == [name]
        assert record == book.record


def test_what_is_read_of_a_journal_is_what_was_applied(tmp_path: Path) -> None:
    """Every kind of event survives the way through the file."""
    from typing import get_args, get_type_hints

    values = {"str": "text", "int": 0, "float": 0.5, "bool": True}
    for kind in get_args(journal.Event):
        hints = get_type_hints(kind)
        event = kind(**{name: values.get(getattr(hint, "__name__", ""), [] if "Seq" in str(hint) else {}) for name, hint in hints.items()})  # fmt: skip
        book = journal.Journal(tmp_path / kind.__name__)
        book.write(event)
        book.close()
        ((_, read),) = journal.events(book.path)
        assert read == event
        assert type(read) is kind
        record = RunRecord()
        record.apply(journal.Planned(["a"]), 1.0)
        record.apply(journal.Start(0, 1, "text", "w", "d", False), 1.0)
        record.apply(read, 2.0)
