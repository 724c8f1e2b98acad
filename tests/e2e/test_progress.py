"""Progress is drawn on a terminal, for work that takes long, and is gone before anybody else writes there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from handmade import make_entry
from ondol.report import progress
from ondol.store import pack
from ondol.store.directory import DirectoryStore

#: Drawn at once, and by the one who does all the work: of several the first may find nothing left to do, or to draw.
CODE = """
import os, sys
os.cpu_count = lambda: 1
from ondol.report import progress
progress._PATIENCE = 0.0
from ondol.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def on_a_terminal(*arguments: str) -> bytes:
    controller, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", CODE, *arguments]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    text = b""
    try:
        while data := os.read(controller, 65536):
            text += data
    except OSError:
        pass  # the other side is gone
    os.close(controller)
    assert process.wait(timeout=60) == 0, text
    return text


def fill_store(store: DirectoryStore) -> None:
    entries = [make_entry(number) for number in range(200)]
    store.publish([(entry.address, pack.encode(entry)) for entry in entries])


def test_long_work_is_shown_on_a_terminal(store: DirectoryStore) -> None:
    fill_store(store)
    text = on_a_terminal("store", "verify", "--store", store.where)
    assert b"ondol: verifying" in text
    assert b"200 entries good" in text.rsplit(b"verifying", 1)[1]


def test_long_walk_is_shown_on_a_terminal(tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / str(number)).touch()
    text = on_a_terminal("doctor", str(tmp_path), "--only", "owners")
    assert b"ondol: looking at" in text
    assert b"1201 files and directories" in text.rsplit(b"looking at", 1)[1], "the bar is gone when the findings come"


def test_no_progress_bar_stands_where_the_command_writes(store: DirectoryStore) -> None:
    fill_store(store)
    text = on_a_terminal("run", "--store", store.where, "--", "echo", "the command")
    assert b"ondol: filling" in text
    assert b"filling" not in text[text.index(b"the command") :]
    assert text[: text.index(b"the command")].endswith((b"\x1b[2K", b"\n", b"\r", b"\x1b[?25h"))


def test_no_progress_where_nobody_looks(store: DirectoryStore) -> None:
    fill_store(store)
    done = subprocess.run(
        [sys.executable, "-c", CODE, "store", "verify", "--store", store.where],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_finished_work_draws_no_bar_after_the_fact(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.ProgressBar() as bar:
        bar("nothing", 1, 1)
        assert not bar._drawn
