"""A whole suite that is called green although a test failed, or was never run."""

from __future__ import annotations

from pathlib import Path

import pytest

import whole_suite
from running_together import group_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a.TestOne" name="test_1" time="1.5"><properties><property name="cpu" value="0.25"/></properties></testcase>
<testcase classname="{second}" name="{name}" time="0.5"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(("second", "name"), [("tests.unit.test_b", "test_2"), ("", "tests.unit.test_b")])
def test_report_names_every_file_also_one_that_is_skipped_as_a_whole(tmp_path: Path, second: str, name: str) -> None:
    (tmp_path / "junit.xml").write_text(REPORT.format(second=second, name=name))
    report = whole_suite.read(tmp_path / "junit.xml")
    assert report.files == {"tests/unit/test_a.py", "tests/unit/test_b.py"}
    assert report.counts == {"passed": 1, "skipped": 1}
    assert report.processor == {"tests/unit/test_a.py": 0.25, "tests/unit/test_b.py": 0.0}


@pytest.mark.parametrize("text", ["", "<testsuites>"])
def test_report_that_was_never_finished_names_no_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "junit.xml").write_text(text)
    report = whole_suite.read(tmp_path / "junit.xml")
    assert len(whole_suite.missing(report, ["tests/unit"])) > 10


def test_file_that_nobody_ran_is_missed(tmp_path: Path) -> None:
    here = Path(__file__).relative_to(whole_suite.ROOT).as_posix()
    (tmp_path / "junit.xml").write_text(REPORT.format(second=here.replace("/", ".")[:-3], name="test_2"))
    report = whole_suite.read(tmp_path / "junit.xml")
    assert whole_suite.missing(report, [here]) == []
    assert here not in whole_suite.missing(report, ["tests"])
    other = here.replace("although_not_run", "although_not_ru")
    assert whole_suite.missing(report, [other]) == []
    report.files.remove(here)
    assert whole_suite.missing(report, [here]) == whole_suite.missing(report, [here, other]) == [here]


@pytest.mark.parametrize(
    "blind", [None, "def test_fails(): assert os.getpid() < 0\n", "def test_takes_its_worker_with_it(): os._exit(0)\n"]
)
def test_runner_that_does_not_see_red_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], blind: str | None
) -> None:
    """One that would not see a failure is like one that was not shown it."""
    monkeypatch.setattr(whole_suite, "WORKERS", 1)
    if blind:
        monkeypatch.setattr(whole_suite, "RED_SUITE", whole_suite.RED_SUITE.replace(blind, ""))
    assert whole_suite.sees_red(tmp_path) == (blind is None)
    assert ("instead of 1 and" in capfd.readouterr().out) == (blind is not None)


def test_what_exists_once_on_a_machine_is_one_group() -> None:
    """Workers run files side by side, and the files of a group one after the other."""
    files = ["tests/slurm/test_slurm.py", "tests/seeds/test_tensorrt_llm.py"]
    assert {group_of(file) for file in files} == {"slurm"}
    assert group_of("tests/unit/test_a.py") == "tests/unit/test_a.py"
