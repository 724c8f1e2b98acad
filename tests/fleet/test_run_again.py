"""Something failed and everything is run again, or the wrong things are: `--rerun` takes what that run left unsettled."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondol.fleet import journal, selection
from ondol.fleet.record import ItemRecord, RunRecord
from ondol.fleet.verdict import Verdict
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

SUITE = """
    import os, pytest
    def test_good(): pass
    def test_bad(): assert os.path.exists("mended")
    def test_flaky():
        if not os.path.exists("was"):
            open("was", "w").close()
            os.abort()
    @pytest.mark.parametrize("n", [1, 2])
    def test_n(n): assert n == 1 or os.path.exists("mended")
"""
UNSETTLED = ["test_a.py::test_bad", "test_a.py::test_flaky", "test_a.py::test_n[2]"]


@pytest.fixture(scope="module")
def first_runs(new_suite: Callable[[], Suite]) -> dict[str, tuple[Suite, Result]]:
    """What is run again below: of `SUITE`, which is mended then, and of two files by `ondol test`."""
    mended, two = new_suite().write(test_a=SUITE), new_suite()
    two.write(test_a="def test_1(): assert 0\n", test_b="def test_2(): pass\n")
    found = {"mended": (mended, mended.pytest()), "two files": (two, two.ondol("--judge=off"))}
    (mended.path / "mended").touch()
    return found


def as_after(first: tuple[Suite, Result], tmp_path: Path) -> Suite:
    """That suite, with a copy of what that run left to be remembered: each test that runs it again leaves more."""
    suite, result = first
    assert result.status == 1
    shutil.copytree(f"{suite.path}-state", tmp_path / "state")
    suite.variables["XDG_STATE_HOME"] = str(tmp_path / "state")
    return suite


@pytest.mark.fault
@pytest.mark.parametrize(("which", "start"), [("latest", "fork"), ("journal", "spawn"), ("name", "fork")])
def test_what_failed_or_was_flaky_is_run_and_nothing_else(
    first_runs: dict[str, tuple[Suite, Result]], tmp_path: Path, which: str, start: str
) -> None:
    suite = as_after(first_runs["mended"], tmp_path)
    (name,) = os.listdir(tmp_path / "state" / "ondol" / "history")
    journal_path = str(first_runs["mended"][1].journal)
    named = {"latest": "latest", "journal": journal_path, "name": name.partition(".")[0]}
    again = suite.pytest(f"--ondol-rerun={named[which]}", f"--ondol-start={start}")
    assert again.status == 0
    assert [item.nodeid for item in again.record.items] == UNSETTLED
    assert "ondol: rerun: 3 of 5 items" in again.output
    assert "5 deselected" not in again.output
    assert "2 deselected" in again.output


def test_what_was_not_run_is_run(suite) -> None:
    suite.write(test_a="def test_1(): assert 0\n", test_b="def test_2(): pass\n")
    first = suite.pytest("-x", "--ondol-judge=off")
    assert set(first.verdicts.values()) == {"failed", "not-run"}
    suite.write(test_a="def test_1(): pass\n")
    again = suite.pytest("--ondol-rerun=latest")
    assert (again.status, len(again.verdicts)) == (0, 2)


def test_another_machines_journal_is_as_good_and_what_is_gone_is_named(suite, tmp_path: Path) -> None:
    suite.write(test_a="def test_1(): assert 0\ndef test_2(): assert 0\n")
    first = suite.pytest("--ondol-judge=off")
    brought = tmp_path / "artifact.jsonl"
    shutil.copy(first.journal, brought)
    brought.write_text(brought.read_text().replace(str(suite.path), "/home/runner/work"))
    suite.write(test_a="def test_1(): pass\ndef test_renamed(): pass\n")
    again = suite.pytest(f"--ondol-rerun={brought}")
    assert again.verdicts == {"test_1": "passed"}
    assert "no longer there, or not collected by these arguments: test_a.py::test_2" in again.output


def test_nothing_to_run_again_is_not_green(suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    suite.pytest()
    again = suite.pytest("--ondol-rerun=latest")
    assert again.status == 5
    assert "nothing is left to run of that run's 1 item" in again.output


def test_a_run_of_another_rootdir_says_so(suite, tmp_path: Path) -> None:
    suite.write(sub__test_a="def test_1(): assert 0\n")
    first = suite.pytest("--rootdir=sub", "sub")
    assert first.status == 1
    again = suite.pytest(f"--ondol-rerun={first.journal}")
    assert again.status == 5
    assert f"that run's rootdir was {suite.path}/sub, this is {suite.path}" in again.output


@pytest.mark.parametrize("name", ["nowhere.jsonl", "20200101", "latest"])
def test_a_run_that_nobody_knows_is_an_error_before_anything_runs(suite, name: str) -> None:
    suite.write(test_a="def test_1(): open('ran', 'w')\n")
    result = suite.pytest(f"--ondol-rerun={name}")
    assert result.status == 4
    assert not (suite.path / "ran").exists()
    assert "journal" in result.output


def test_latest_is_this_projects_latest(suite, tmp_path: Path) -> None:
    suite.write(one__test_a="def test_1(): assert 0\n", two__test_b="def test_2(): assert 0\n")
    suite.pytest("--rootdir=one", "one")
    suite.pytest("--rootdir=two", "two")
    again = suite.pytest("--rootdir=one", "one", "--ondol-rerun=latest")
    assert again.verdicts == {"test_1": "failed"}


@pytest.mark.fault
def test_the_items_of_a_file_that_ended_its_collection_are_run(suite) -> None:
    suite.write(test_a="def test_1(): pass\n", test_ends="import os\nos._exit(0)\n")
    first = suite.ondol("--continue-on-collection-errors")
    suite.write(test_ends="def test_2(): pass\n")
    again = suite.ondol(f"--rerun={first.journal}")
    assert (again.status, again.verdicts) == (0, {"test_2": "passed"})


@pytest.mark.parametrize("words", [["--rerun", "latest"], ["--shard", "1/2"]])
def test_nodes_that_collect_everything_run_the_chosen_part(first_runs, tmp_path: Path, words: list[str]) -> None:
    suite = as_after(first_runs["two files"], tmp_path)
    result = suite.ondol(*words, "--launch", "{agent}", "--judge=off", devices="cpu:1")
    assert result.verdicts == {"test_1": "failed"}, result.output


@given(st.lists(st.tuples(st.sampled_from(list(Verdict)), st.booleans()), max_size=8), st.sets(st.integers(0, 7)))
def test_each_unsettled_item_is_chosen_or_named(items: list[tuple[Verdict, bool]], left: set[int]) -> None:
    record = RunRecord([ItemRecord(f"t{n}", verdict=v.value, flaky=f) for n, (v, f) in enumerate(items)])
    ids = [f"t{n}" for n in sorted(left)]
    places, gone = selection.again(record, ids)
    good = {f"t{n}" for n, (v, flaky) in enumerate(items) if not (v.bad or v.incomplete or flaky)}
    assert {ids[place] for place in places} | set(gone) == {i.nodeid for i in record.items} - good
    assert set(gone).isdisjoint(ids)


def test_journals_of_runs_without_a_verdict_are_no_trouble() -> None:
    record = RunRecord(fatal=[journal.CollectionFault("a.py", "gone")])
    assert selection.again(record, ["a.py::x", "b.py::y"]) == ([0], [])
