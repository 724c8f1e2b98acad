"""A suite that runs side by side and is green although something was not run."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

import side_by_side
from running_together import group_of
from side_by_side import Batch, Lanes, Processors, batches, judge

FILES = sorted(path.relative_to(side_by_side.ROOT).as_posix() for path in Path(__file__).parents[1].rglob("test_*.py"))
BATCH = Batch("tests/unit/test_a.py", ["tests/unit/test_a.py", "tests/unit/test_b.py"], 1.0)
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a.TestOne" name="test_1" time="1.5"><properties><property name="cpu" value="0.25"/></properties></testcase>
<testcase classname="{second}" name="{name}" time="0.5"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize("seconds", [0.0, 7.0, 1000.0])
def test_every_file_is_in_one_batch_and_groups_stay_together(seconds: float) -> None:
    made = batches(FILES, dict.fromkeys(FILES, seconds))
    assert Counter(file for batch in made for file in batch.files) == Counter(FILES)
    slurm = [batch for batch in made if any(file.startswith("tests/slurm/") for file in batch.files)]
    assert len(slurm) == 1
    assert [file for file in FILES if file in slurm[0].files] == [file for file in FILES if group_of(file) == "slurm"]
    assert [batch.seconds for batch in made] == sorted((batch.seconds for batch in made), reverse=True)


def judged(tmp_path: Path, report: str, status: int = 0, partial: bool = False) -> side_by_side.Outcome:
    (tmp_path / "junit.xml").write_text(report)
    (tmp_path / "output").write_bytes(b"said \xff")
    return judge(BATCH, status, tmp_path / "junit.xml", tmp_path / "output", partial)


@pytest.mark.parametrize(("second", "name"), [("tests.unit.test_b", "test_2"), ("", "tests.unit.test_b")])
def test_whole_batch_is_green(tmp_path: Path, second: str, name: str) -> None:
    """A module that is skipped as a whole is a case without a class."""
    outcome = judged(tmp_path, REPORT.format(second=second, name=name))
    assert outcome.trouble == ""
    assert outcome.counts == {"passed": 1, "skipped": 1}
    assert outcome.skips == {"no GPU": 1}
    assert outcome.seconds == {"tests/unit/test_a.py": 1.5, "tests/unit/test_b.py": 0.5}
    assert outcome.processor == {"tests/unit/test_a.py": 0.25, "tests/unit/test_b.py": 0.0}


def test_file_that_nobody_ran_is_red(tmp_path: Path) -> None:
    text = REPORT.format(second="tests.unit.test_bc", name="test_2")
    assert judged(tmp_path, text).trouble == "no test of tests/unit/test_b.py was run"
    assert judged(tmp_path, text, partial=True).trouble == ""


@pytest.mark.parametrize("status", [1, 2, 5, -9])
def test_process_that_ends_badly_is_red_whatever_it_wrote(tmp_path: Path, status: int) -> None:
    text = REPORT.format(second="tests.unit.test_b", name="test_2")
    assert judged(tmp_path, text, status).trouble == f"pytest ended with status {status}"


@pytest.mark.parametrize("report", ["", "<testsuites>"])
def test_report_that_was_never_finished_is_red(tmp_path: Path, report: str) -> None:
    outcome = judged(tmp_path, report)
    assert "was run" in outcome.trouble
    assert outcome.output == "said \ufffd"
    assert side_by_side.finish([outcome], 1, 0.0) == 1


def test_batch_without_an_outcome_is_red(tmp_path: Path) -> None:
    outcome = judged(tmp_path, REPORT.format(second="tests.unit.test_b", name="test_2"))
    assert side_by_side.finish([outcome], 1, 0.0) == 0
    assert side_by_side.finish([outcome], 2, 0.0) == 1


def test_time_that_no_processor_used_is_counted_since_the_last_look(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\n")
    processors = Processors(stat)
    stat.write_text("cpu  160 0 70 810 60 0 0 0 0 0\ncpu0 1 2\n")
    assert processors.idle(after=3600.0) == 0.0
    assert processors.idle(after=0.0) == 0.2
    assert processors.idle(after=0.0) == 0.0


@pytest.mark.parametrize(("unused", "together"), [(0.0, 2), (1.0, 3)])
def test_another_process_starts_only_while_processors_have_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused: float, together: int
) -> None:
    """Each of `together` ends when all of them have begun; with one less, none would."""
    meeting = threading.Barrier(together, timeout=60)
    most: list[int] = []

    def run(batch: Batch, *_: object) -> side_by_side.Outcome:
        meeting.wait()
        most.append(lanes.busy)
        meeting.wait()
        return side_by_side.Outcome(batch, Counter(), Counter(), {}, {}, 0.0, "", "")

    monkeypatch.setattr(side_by_side, "run", run)
    monkeypatch.setattr(Processors, "idle", lambda self: unused)
    lanes = Lanes([BATCH] * 6, tmp_path, [])
    assert len(lanes.run(2, 3)) == 6
    assert set(most) == {together}
