"""Anybody writes into a history that all share: who is not trusted changes nothing of what it says, and costs little."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleet.test_past_runs_are_lost import write_run
from ondol.fleet import journal, kept, past
from people import Program, needs_root

pytestmark = pytest.mark.warm

NAME = "20300101-0000000000-0123456789ab" + journal.KEPT


@pytest.fixture
def history(tmp_path: Path) -> Path:
    kept.keep(write_run(tmp_path / "j.jsonl", "passed"), str(tmp_path / "history"))
    return tmp_path / "history"


def good(tmp_path: Path) -> bytes:
    kept.keep(write_run(tmp_path / "other.jsonl", "failed", "failed"), str(tmp_path / "made"))
    (path,) = (tmp_path / "made").iterdir()
    return path.read_bytes()


def plant(history: Path, what: str, data: bytes) -> None:
    path = history / NAME
    if what == "others can write it":
        path.write_bytes(data)
        path.chmod(0o666)
    elif what == "a link":
        (history.parent / "elsewhere").write_bytes(data)
        path.symlink_to(history.parent / "elsewhere")
    elif what == "a fifo":
        os.mkfifo(path)
    elif what == "cut off":
        path.write_bytes(data[:60])
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "promises too much":
        path.write_bytes(journal.pack_kept(b" " * (65 << 20), b""))
    elif what == "a hole":
        path.write_bytes(data[:60])
        os.truncate(path, 1 << 40)
    else:
        path.write_bytes(b"\xff" * 100)


WAYS = ["others can write it", "a link", "a fifo", "cut off", "empty", "promises too much", "a hole", "noise"]


@pytest.mark.parametrize("what", WAYS)
def test_what_is_not_a_believed_file_is_passed_over_and_counted(history: Path, tmp_path: Path, what: str) -> None:
    plant(history, what, good(tmp_path))
    runs, passed = kept.runs(str(history))
    assert ([run.counts() for run in runs], passed) == ([{"passed": 1}], 1)
    assert kept.latest(str(history)) != history / NAME


def test_names_that_are_no_run_are_nobodys_business(history: Path, tmp_path: Path) -> None:
    data = good(tmp_path)
    for name in ("a.jsonl.zst", "..jsonl.zst", ".20300101-0000000000-0123456789ab.jsonl.zst", NAME + ".tmp"):
        (history / name).write_bytes(data)
    assert kept.runs(str(history))[1] == 0
    assert len(kept.clean(4e9, str(history), dry_run=True)) == 1


@needs_root
@pytest.mark.root
def test_strangers_runs_count_only_for_who_trusts_them(program: Program, public: Path, tmp_path: Path) -> None:
    where = public / "shared-history"
    where.mkdir(mode=0o755)
    where.chmod(0o1777)
    (where / NAME).write_bytes(good(tmp_path))
    os.chown(where / NAME, 1001, 1001)
    home = public / "reader-of-history"
    home.mkdir()
    os.chown(home, 1000, 1000)
    env = {"HOME": str(home)}
    told = program.ondol("history", "--history", str(where), uid=1000, env=env)
    assert told.stdout.startswith("0 runs of 0 tests")
    assert "1 file of this history ignored" in told.stderr
    told = program.ondol("history", "--history", str(where), "--trust", "1001", uid=1000, env=env)
    assert "1 run of 2 tests" in told.stdout
    store = public / "store-of-history"
    assert program.ondol("store", "init", str(store), "--writers", "1001").returncode == 0
    told = program.ondol("history", "--history", str(where), "--store", str(store), uid=1000, env=env)
    assert "1 run of 2 tests" in told.stdout, "a writer of the store is believed here too"


@needs_root
@pytest.mark.root
def test_cleaning_touches_only_ones_own(history: Path, tmp_path: Path) -> None:
    (history / NAME).write_bytes(good(tmp_path))
    os.chown(history / NAME, 1001, 1001)
    kept.clean(4e9, str(history))
    assert os.listdir(history) == [NAME]


def test_text_of_others_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ondol.cli import history as command

    (tmp_path / "h").mkdir()
    run = past.PastRun("x", 1.0, 1.0, 0, "h\x1b[2J", "/", None, None, {"\x1b]0;t\n::error::x": past.Outcome("failed")})
    (tmp_path / "h" / NAME).write_bytes(journal.pack_kept(past.to_line(run), b"{}\n"))
    for words in ([], ["slow"], ["error"]):
        command.main([*words, "--history", str(tmp_path / "h")])
        told = capsys.readouterr().out
        assert "\x1b" not in told
        assert not any(line.startswith("::") for line in told.splitlines())
