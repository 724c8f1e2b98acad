"""A run is over and nobody remembers it: its journal is kept, whole, one file per run, and what stands in the way of that
costs a warning and never the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ondol.fleet import journal, kept, past
from ondol.fleet.record import Book, load
from ondol.host import files
from ondol_hang import hanging_mount
from people import needs_root

pytestmark = pytest.mark.warm_pytest

DAY = 86400.0


def write_run(path: Path, *verdicts: str, seconds: float = 0.5, over: bool = True, flaky: bool = False) -> Path:
    """A journal with one run of tests t.py::test_0, test_1 …"""
    book = Book(path)
    book.write(journal.Run(root="/project"), journal.Planned([f"t.py::test_{n}" for n in range(len(verdicts))]))
    for number, verdict in enumerate(verdicts):
        if verdict == "not-run":
            continue
        book.write(journal.Start(number, 1, "cpu0", "w", "cpu0", False))
        book.write(journal.End(number, 1, verdict, "", "", seconds), journal.Verdict(number, verdict, flaky, ""))
    if over:
        book.write(journal.Over(0, {}))
    book.close()
    return path


@pytest.fixture
def history(tmp_path: Path) -> str:
    return str(tmp_path / "history")


@pytest.mark.parametrize("way", ["pytest", "ondol"])
def test_every_run_is_kept_whole_by_whoever_started_it(suite, way: str, tmp_path: Path) -> None:
    suite.write(test_a="def test_1(): pass\ndef test_2(): assert 0, 'here'\n")
    option = "--ondol-history" if way == "pytest" else "--history"
    result = getattr(suite, way)(f"{option}={tmp_path / 'h'}")
    (name,) = os.listdir(tmp_path / "h")
    one = load(tmp_path / "h" / name)
    assert [(i.nodeid, i.verdict) for i in one.items] == [(i.nodeid, i.verdict) for i in result.record.items]
    assert "here" in one.items[1].attempts[-1].text
    assert journal.journal_of((tmp_path / "h" / name).read_bytes()) == result.journal.read_bytes()
    ((run,), passed) = kept.runs(str(tmp_path / "h"))
    assert (passed, run.status, run.counts()) == (0, 1, {"passed": 1, "failed": 1})
    assert (run.compiled is None) == (way == "pytest"), "`ondol test` has a room, and its journal tells of it"


@needs_root
@pytest.mark.root
def test_a_history_on_a_dead_file_server_is_named_and_costs_no_run(suite, tmp_path_factory) -> None:
    """Every access to it waits for ever: for who writes, who reads, and who divides the suite by it."""
    suite.write(test_a="def test_1(): pass\n")
    dead = tmp_path_factory.mktemp("dead")  # not in the suite, where pytest looks for tests
    ondol, history = [sys.executable, "-m", "ondol"], f"--history={dead}/h"
    subprocess.run(
        "git init -q && git -c user.name=a -c user.email=a commit -qm a --allow-empty", shell=True, cwd=suite.path
    )
    with hanging_mount(dead):
        commands = [[*ondol, "test", "--devices=cpu:1", history], [*ondol, "history", history]]
        commands.append([*ondol, "test", "--devices=cpu:1", history, "--shard=1/2"])
        running = [suite.start(command) for command in commands]
        (wrote, read, divided) = [one.communicate(timeout=suite.patience)[0] for one in running]
    assert [one.returncode == 0 for one in running] == [True, False, False], (wrote, read, divided)
    assert f"this run is not in the history in {dead}/h" in wrote
    for said in (read, divided):
        assert f"the history in {dead}/h does not answer" in said
        assert "--history DIR" in said


def test_without_a_directory_it_is_the_users_own_and_private(suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    assert suite.pytest().status == 0
    (kept_journal,) = Path(f"{suite.path}-state/ondol/history").iterdir()
    assert kept_journal.stat().st_mode & 0o777 == 0o600
    assert kept_journal.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.fault
def test_a_run_whose_controller_was_killed_is_kept_too(suite, tmp_path: Path) -> None:
    suite.write(test_a="import os, signal\ndef test_1(): pass\ndef test_2(): os.kill(os.getppid(), 0)\n")
    suite.write(conftest="import os\ndef pytest_sessionfinish(): os._exit(9)\n")
    result = suite.ondol(f"--history={tmp_path / 'h'}")
    assert "pytest itself died" in result.output
    ((run,), _) = kept.runs(str(tmp_path / "h"))
    assert run.status is None
    assert set(run.items) == {"test_a.py::test_1", "test_a.py::test_2"}


def test_several_runs_in_one_file_are_told_apart(tmp_path: Path, history: str) -> None:
    path = write_run(tmp_path / "j.jsonl", "passed")
    assert kept.keep(path, history) == ""
    write_run(path, "failed", "passed")
    assert kept.keep(path, history) == ""
    runs, _ = kept.runs(history)
    assert [run.counts() for run in runs] == [{"passed": 1}, {"passed": 1, "failed": 1}]
    assert kept.keep(path, history) == ""
    assert len(os.listdir(history)) == 2, "the same run is kept once"
    whole = [journal.journal_of(Path(history, name).read_bytes()) for name in sorted(os.listdir(history))]
    assert b"".join(whole) == path.read_bytes(), "each has its own lines and no others"


@pytest.mark.parametrize("followed", [b"", b'{"t": 9.0, "e": "room", "nod'])
def test_who_has_run_it_need_not_read_it_again(tmp_path: Path, history: str, followed: bytes) -> None:
    """The same file, whoever keeps it; also where the story of its room was cut off."""
    path = write_run(write_run(tmp_path / "j.jsonl", "failed"), "passed", "not-run", "failed", flaky=True)
    path.write_bytes(path.read_bytes() + followed)
    assert kept.keep(path, history) == kept.keep(path, f"{history}-too", load(path)) == ""
    (name,) = os.listdir(history)
    assert os.listdir(f"{history}-too") == [name]
    assert Path(history, name).read_bytes() == Path(f"{history}-too", name).read_bytes()
    assert len(load(Path(history, name)).items) == 3


def test_what_is_kept_is_a_journal_for_zstd_and_for_report(tmp_path: Path, history: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    kept.keep(write_run(tmp_path / "j.jsonl", "passed", "failed"), history)
    (name,) = os.listdir(history)
    with open(os.path.join(history, name), "rb") as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    assert plain.endswith((tmp_path / "j.jsonl").read_bytes())
    assert [json.loads(line)["e"] for line in plain.splitlines()][:2] == ["past", "run"]
    assert load(Path(history) / name).counts() == {"passed": 1, "failed": 1}


# ---------------------------------------------------------------------- trouble


def unusable(tmp_path: Path, trouble: str) -> Path:
    where = tmp_path / "h"
    if trouble == "a file":
        where.write_text("precious")
    elif trouble == "a broken link":
        where.symlink_to(tmp_path / "nowhere" / "at all")
    else:
        (tmp_path / "f").write_text("")
        where = tmp_path / "f" / "h"
    return where


@pytest.mark.fault
@pytest.mark.parametrize("trouble", ["a file", "a broken link", "no parent"])
def test_a_directory_that_cannot_be_used_is_told_and_left_alone(tmp_path: Path, trouble: str) -> None:
    where = unusable(tmp_path, trouble)
    assert kept.keep(write_run(tmp_path / "j.jsonl", "passed"), str(where))
    assert trouble != "a file" or where.read_text() == "precious"


@pytest.mark.fault
@pytest.mark.parametrize(("way", "trouble"), [("pytest", "a file"), ("ondol", "no parent")])
def test_a_directory_that_cannot_be_used_costs_a_warning_only(suite, tmp_path: Path, way: str, trouble: str) -> None:
    where = unusable(tmp_path, trouble)
    suite.write(test_a="def test_1(): pass\n")
    result = getattr(suite, way)(f"{'--ondol-history' if way == 'pytest' else '--history'}={where}")
    assert (result.status, result.verdicts) == (0, {"test_1": "passed"})
    assert "this run is not in the history in" in result.output


@pytest.mark.fault
def test_a_full_disk_leaves_nothing_half(tmp_path: Path, history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    path = write_run(tmp_path / "j.jsonl", "passed")
    monkeypatch.setattr(files, "write_all", full)
    assert "No space left on device" in kept.keep(path, history)
    assert os.listdir(history) == []


def test_what_is_too_old_too_many_or_too_much_goes(tmp_path: Path, history: str, monkeypatch) -> None:
    monkeypatch.setattr(kept, "MOST", 3)
    for number in range(5):
        kept.keep(write_run(tmp_path / f"{number}.jsonl", *["passed"] * (number + 1)), history)
    assert len(os.listdir(history)) == 3
    runs, _ = kept.runs(history)
    times = [os.stat(os.path.join(history, name)).st_mtime for name in os.listdir(history)]
    oldest, now = min(times), max(times)
    assert kept.clean(oldest + kept.LONGEST, history) == []
    monkeypatch.setattr(kept, "LARGEST", os.stat(os.path.join(history, runs[-1].name + journal.KEPT)).st_size)
    assert len(kept.clean(now, history, dry_run=True)) == 2
    assert len(kept.clean(now, history)) == 2
    assert [run.name for run in kept.runs(history)[0]] == [runs[-1].name], "the newest stays"
    assert len(kept.clean(now + kept.LONGEST + 10, history)) == 1


# ---------------------------------------------------------------------- what they add up to


def run_of(number: int, **items: past.Outcome) -> past.PastRun:
    return past.PastRun(f"run{number}", float(number), 1.0, 0, "host", "/r", None, None, items)


def story(*verdicts: str) -> past.TestPast:
    outcomes = [past.Outcome(word.removesuffix("~"), flaky=word.endswith("~"), seconds=n) for n, word in enumerate(verdicts)]  # fmt: skip
    return past.fold([run_of(number, t=outcome) for number, outcome in enumerate(outcomes)])["t"]


@pytest.mark.parametrize(
    ("verdicts", "runs", "failures", "flaky"),
    [
        (("passed", "passed"), 2, 0, 0),
        (("passed", "failed", "failed"), 3, 2, 0),  # broken since
        (("failed", "passed", "passed"), 3, 1, 0),  # mended
        (("passed", "failed", "failed", "passed"), 4, 2, 0),  # broken and mended
        (("passed", "failed", "passed"), 3, 1, 1),
        (("passed", "passed~", "passed"), 3, 0, 1),
        (("passed", "skipped", "failed", "not-run", "crashed", "passed"), 4, 2, 0),
        (("skipped", "not-run"), 0, 0, 0),
    ],
)
def test_flaky_is_neither_broken_nor_mended(verdicts, runs, failures, flaky) -> None:
    test = story(*verdicts)
    assert (test.runs, test.failures, test.flaky) == (runs, failures, flaky)
    assert test.flaky_rate == (flaky / runs if runs else 0.0)
    assert len(test.story) == len(verdicts)


def test_the_usual_duration_is_the_middle_of_what_came_to_an_end() -> None:
    test = story("passed", "passed", "crashed", "passed", "skipped")
    assert test.durations == [0, 1, 3]
    assert test.usual == 1


def test_a_line_survives_its_way_and_nonsense_does_not() -> None:
    run = run_of(1, t=past.Outcome("passed", True, 0.25, False))
    assert past.from_line(past.to_line(run), "run1") == run
    told = json.loads(past.to_line(run))
    for broken in (b"", b"[]", b"{}", b"[" * 100_000, json.dumps({**told, "items": [["t", "won", 0, 0, 0]]}).encode()):
        assert past.from_line(broken, "x") is None
    for field, value in (("began", "x"), ("seconds", float("nan")), ("items", 3), ("format", 2), ("began", -1)):
        assert past.from_line(json.dumps({**told, field: value}).encode(), "x") is None


# ---------------------------------------------------------------------- the commands


def ondol(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-m", "ondol", *words], env=env, capture_output=True, text=True, cwd=tmp_path
    )


def test_history_command_tells_runs_flaky_slow_and_the_story_of_one(tmp_path: Path, history: str) -> None:
    for number, verdicts in enumerate([("passed", "passed"), ("passed", "failed"), ("passed", "passed", "not-run")]):
        kept.keep(write_run(tmp_path / f"{number}.jsonl", *verdicts, seconds=float(number + 1)), history)
    told = ondol(tmp_path, "history", "--history", history)
    assert told.returncode == 0
    assert told.stdout.splitlines()[-1] == f"3 runs of 3 tests in {history}"
    flaky = json.loads(ondol(tmp_path, "history", "flaky", "--history", history, "--json").stdout)
    assert flaky["format"] == "ondol-history-tests/1"
    (row,) = flaky["tests"]
    assert (row["test"], row["runs"], row["failures"], row["flaky"]) == ("t.py::test_1", 3, 1, 1)
    slow = json.loads(ondol(tmp_path, "history", "slow", "--most=1", "--history", history, "--json").stdout)
    assert [row["usual_seconds"] for row in slow["tests"]] == [2.0]
    one = ondol(tmp_path, "history", "test_1", "--history", history)
    assert one.stdout.count("failed\n") == 1
    assert "33% flaky" in one.stdout
    overview = json.loads(ondol(tmp_path, "history", "--history", history, "--json").stdout)
    assert [run["counts"] for run in overview["runs"]][-1] == {"passed": 2, "not-run": 1}


def test_a_test_that_nobody_ran_is_an_error_with_the_nearest_name(tmp_path: Path, history: str) -> None:
    kept.keep(write_run(tmp_path / "j.jsonl", "passed"), history)
    told = ondol(tmp_path, "history", "flakey", "--history", history)
    assert told.returncode == 2
    assert "'flakey'" in told.stderr
    assert "did you mean flaky?" in told.stderr


def test_an_empty_history_is_said(tmp_path: Path) -> None:
    told = ondol(tmp_path, "history")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("0 runs of 0 tests in ")


def test_report_finds_runs_by_name_beginning_and_latest(tmp_path: Path, history: str) -> None:
    kept.keep(write_run(tmp_path / "a.jsonl", "passed"), history)
    kept.keep(write_run(tmp_path / "b.jsonl", "failed", "failed"), history)
    names = [run.name for run in kept.runs(history)[0]]
    for word in (names[0], names[1][:-4]):
        told = ondol(tmp_path, "report", word, "--history", history)
        assert "### ondol test: " in told.stdout, told.stderr
    assert ondol(tmp_path, "report", "latest", "--history", history).returncode == 1
    wrong = ondol(tmp_path, "report", "19990101", "--history", history)
    assert wrong.returncode == 2
    assert "ondol history" in wrong.stderr
