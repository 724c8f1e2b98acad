"""The live view on a real terminal: one line per device above the log, and not a letter of the log lost."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondol.fleet import journal
from ondol.fleet.record import RunRecord
from ondol.report import terminal_window
from ondol.report.run_live import LiveView
from ondol.report.terminal_window import Window

COLUMNS, ROWS = 90, 24
#: Of the small terminal.
WIDE, HIGH = 41, 12


class Terminal:
    """A terminal of this size with a program in it; `screen` is what a person sees, `history` what has scrolled away."""

    def __init__(self, command: list[str], **how: Any) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self._controller, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (ROWS, COLUMNS)) if hasattr(termios, "tcsetwinsize") else _set_size(terminal)
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, **how)
        os.close(terminal)

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Feeds the screen until it looks like that; fails if the program ends before."""
        limit = time.monotonic() + 60
        while not seen(self.lines()):
            assert time.monotonic() < limit, "\n".join(self.lines())
            assert self._feed(), "it never looked like that:\n" + "\n".join(self.lines())
        return self.lines()

    def end(self) -> list[str]:
        """Everything, scrolled away or not, after the program has ended."""
        while self._feed():
            pass
        assert self.process.wait(timeout=60) is not None
        gone = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in self.screen.history.top]
        return [*gone, *self.lines()]

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def _feed(self) -> bool:
        if not select.select([self._controller], [], [], 60)[0]:
            return False
        try:
            data = os.read(self._controller, 65536)
        except OSError:
            return False
        self._stream.feed(data)
        return bool(data)


def _set_size(terminal: int) -> None:
    import fcntl
    import struct

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))


def start(suite, *arguments: str) -> Terminal:
    command = [sys.executable, "-m", "pytest", "--ondol-devices=cpu:2", "--ondol-journal=j.jsonl", *arguments]
    # The size is the terminal's own: variables would overrule it.
    left_out = ("CI", "COLUMNS", "LINES")
    environment = {name: value for name, value in suite.environment().items() if name not in left_out}
    return Terminal(command, cwd=suite.path, env={**environment, "TERM": "xterm"})


def place(lines: list[str], pattern: str) -> int:
    return next((number for number, line in enumerate(lines) if re.search(pattern, line)), -1)


WAITING = """
    import os, pytest, select
    @pytest.mark.parametrize("n", range(30))
    def test_quick(n): pass
    def test_waits_for_us():
        gate = os.open("gate", os.O_RDONLY)
        assert os.read(gate, 1) == b"x"
"""


def test_the_view_neither_hides_the_log_nor_stands_below_it(suite) -> None:
    suite.write(test_l=WAITING)
    os.mkfifo(suite.path / "gate")
    terminal = start(suite, "-v")
    lines = terminal.until(
        lambda lines: (
            place(lines, r"cpu\d.*done +[\d.]+ s  test_l.py::test_waits_for_us") >= 0
            and place(lines, "30 of 31 done") >= 0
            and place(lines, r"PASSED test_l.py::test_quick\[\d+\]") >= 0
        )
    )
    view = [place(lines, r"^ +cpu0  #\d"), place(lines, r"^ +cpu1  #\d"), place(lines, "30 of 31 done")]
    assert view == list(range(view[0], view[0] + 3))
    assert re.search(r"PASSED", lines[view[-1] + 1]), "the log goes on below the view"
    _open_gate(suite.path)
    log = terminal.end()
    assert terminal.process.returncode == 0
    assert [line for line in log if "#1" in line or "of 31 done" in line] == [], "the view is gone at the end"
    passed = [line for line in log if "PASSED" in line]
    assert len(passed) == len(set(passed)) == 31, "every line of the log once"


def _open_gate(path: Path) -> None:
    with open(path / "gate", "wb") as gate:
        gate.write(b"x")


def test_interrupted_run_leaves_no_view_on_the_terminal(suite) -> None:
    suite.write(test_l=WAITING)
    os.mkfifo(suite.path / "gate")
    terminal = start(suite)
    terminal.until(lambda lines: place(lines, "30 of 31 done") >= 0)
    terminal.process.send_signal(signal.SIGINT)
    log = terminal.end()
    assert terminal.process.returncode == 2
    assert place(log, "of 31 done$") == -1
    assert place(log, "KeyboardInterrupt") >= 0


def test_neither_a_pipe_nor_ci_gets_escape_codes(suite) -> None:
    suite.write(test_l="def test_one(): pass\n")
    assert "\x1b[J" not in suite.pytest().output


class _Recorder:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text.replace("\n", "\r\n")

    def flush(self) -> None:
        pass


_TEXT = st.one_of(
    st.text(st.sampled_from("ab\n .\x1b"), max_size=40).map(lambda text: text.replace("\x1b", "\x1b[32m")),
    st.text(st.sampled_from("ab"), min_size=30, max_size=130),
)


@settings(deadline=None)
@given(st.lists(st.one_of(_TEXT, st.integers(0, 30)), max_size=30))
def test_every_line_of_the_log_is_shown_once(steps: list[str | int]) -> None:
    """Any text in any pieces, drawn at any moment with any number of devices: at the end the log reads as without us."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((WIDE, HIGH)))
        plain, ours = _Recorder(), _Recorder()
        window = Window(ours)
        for step in steps:
            if isinstance(step, int):
                window.draw([f"device {n}" for n in range(step)] + ["0 of 9"])
            else:
                window.write(step)
                plain.write(step)
        window.close()
    assert _seen(ours.text) == _seen(plain.text)


def _seen(text: str) -> list[str]:
    screen = pyte.HistoryScreen(WIDE, HIGH, history=10000, ratio=0.5)
    pyte.Stream(screen).feed(text)
    gone = ["".join(row[x].data for x in range(WIDE)).rstrip() for row in screen.history.top]
    lines = [*gone, *(line.rstrip() for line in screen.display)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def test_rows_of_wide_letters_are_counted() -> None:
    """A terminal starts a new row for a wide letter that has only one column left; the emulator above does not."""
    assert [terminal_window._height(text, 41) for text in ("", "한" * 20, "한" * 21, "a" * 41, "a" * 42)] == [
        1,
        1,
        2,
        1,
        2,
    ]
    assert terminal_window._height("a" * 45 + "한" * 39, 41) == 4
    assert terminal_window._height("\x1b[32m" + "a" * 41 + "\x1b[0m", 41) == 1


# ---------------------------------------------------------------------- what the lines say


def record_of(*verdicts: str, running: str = "") -> RunRecord:
    """Items with these verdicts, and one that runs in cpu0 since second 100."""
    record = RunRecord()
    ids = [
        f"tests/operators/attention/test_forward.py::TestForward::test_number[{n}-float16]"
        for n in range(len(verdicts))
    ]
    record.apply(journal.Run(slots={"cpu0": "cpu0", "cpu1": "cpu1"}), 90.0)
    record.apply(journal.Planned([*ids, running] if running else ids), 90.0)
    for number, verdict in enumerate(verdicts):
        if verdict:
            record.apply(journal.Start(number, 1, "cpu0", "w", "cpu0", True), 91.0 + number)
            record.apply(journal.End(number, 1, verdict, "", "why", 1.0), 91.5 + number)
            record.apply(journal.Verdict(number, verdict, False, "why"), 91.5 + number)
    if running:
        record.apply(journal.Start(len(verdicts), 1, "cpu0", "w", "cpu0", True), 100.0)
    return record


def view(record: RunRecord, now: float = 104.0, **estimates: float) -> list[str]:
    return LiveView(SimpleNamespace(colours=True), estimates).lines(record, now)


def test_an_item_that_takes_too_long_stands_out() -> None:
    record = record_of("passed", running="t.py::x")
    assert view(record)[0].endswith("1 done     4.0 s  t.py::x")
    assert view(record, **{"t.py::x": 10.0})[0].endswith("4.0 of 10.0 s  t.py::x")
    assert view(record, 140.0, **{"t.py::x": 10.0})[0].endswith("40.0 of 10.0 s late  t.py::x")


def test_what_failed_is_seen_before_the_end() -> None:
    record = record_of("failed", "passed", "crashed", "failed", "timeout", running="t.py::x")
    lines = view(record)
    assert [line.split()[0] for line in lines[2:5]] == ["crashed", "failed", "timeout"], "the newest three"
    assert lines[-1].strip() == "5 of 6 done, 4 failed"
    record.apply(journal.Known({"0": "ticket"}, ()), 105.0)
    assert view(record)[-1].strip() == "5 of 6 done, 3 failed", "a muted failure alarms nobody"


def test_the_estimate_stays_though_one_item_is_new() -> None:
    record = record_of("passed", running="t.py::x")
    record.apply(journal.Planned(["a", "b", "c"]), 90.0)
    assert "about 9 s left" in view(record, a=6.0, b=6.0)[-1]
    assert "left" not in view(record, a=6.0)[-1]


def test_long_names_do_not_break_the_lines_of_a_narrow_terminal() -> None:
    record = record_of(
        "failed", running="tests/operators/a_very_long_directory/test_of_everything.py::TestIt::test_it[1]"
    )
    for line in view(record):
        assert len(line) <= 79
    assert view(record)[0].endswith("::TestIt::test_it[1]"), "the end of a name tells more than its beginning"


def test_no_colours_where_nobody_wants_them() -> None:
    live = LiveView(SimpleNamespace(colours=True), {})
    assert live._paint("     failed  t.py::x") == "\x1b[31m     failed  t.py::x\x1b[0m"
    assert live._paint("  cpu0  #1  1 done  40.0 of 10.0 s late  x").startswith("\x1b[33m")
    assert live._paint("  cpu0  #1  1 done  4.0 s  failed") == "  cpu0  #1  1 done  4.0 s  failed"


FAILING = """
    import os
    def test_a_fails(): assert 0
    def test_waits_for_us():
        gate = os.open("gate", os.O_RDONLY)
        assert os.read(gate, 1) == b"x"
"""


@pytest.fixture
def no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("variable", "value", "coloured"), [("NO_COLOR", "1", False), ("FORCE_COLOR", "1", True)])
@pytest.mark.usefixtures("no_wish")
def test_a_wish_about_colours_is_obeyed_on_a_real_terminal(suite, variable, value, coloured) -> None:
    suite.write(test_l=FAILING)
    os.mkfifo(suite.path / "gate")
    suite.variables[variable] = value
    terminal = start(suite, "--ondol-judge=off")
    lines = terminal.until(lambda lines: place(lines, "^ +failed  test_l.py::test_a_fails") >= 0)
    row = terminal.screen.buffer[place(lines, "^ +failed  test_l.py::test_a_fails")]
    assert (row[6].fg == "red") == coloured
    _open_gate(suite.path)
    log = terminal.end()
    assert place(log, "^again: ondol test --rerun ") >= 0


@pytest.mark.usefixtures("no_wish")
def test_a_dumb_terminal_gets_no_view(suite) -> None:
    suite.write(test_l="def test_one(): pass\n")
    command = [sys.executable, "-m", "pytest", "--ondol-devices=cpu:1", "--ondol-journal=j.jsonl"]
    environment = {name: value for name, value in suite.environment().items() if name != "CI"}
    terminal = Terminal(command, cwd=suite.path, env={**environment, "TERM": "dumb"})
    seen: list[bytes] = []
    feed = terminal._stream.feed

    def listen(data: bytes) -> None:
        seen.append(data)
        feed(data)

    terminal._stream.feed = listen  # type: ignore[method-assign]
    terminal.end()
    assert terminal.process.returncode == 0
    assert b"\x1b" not in b"".join(seen)
