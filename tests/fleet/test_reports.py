"""Renderings of a journal: valid, complete, and the same names as plain pytest's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from handmade import present
from ondol.cli.report import status_of
from ondol.errors import UsageError
from ondol.fleet import journal
from ondol.fleet.journal import Journal
from ondol.fleet.record import RunRecord, load
from ondol.report import run_json, run_junit, run_markdown
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

MIXED = """
import os, pytest
class TestIn:
    @pytest.mark.parametrize("x", ["a::b", "tab\\t", "\\x00nul", "ünïcode"])
    def test_param(self, x): pass
def test_fail():
    print("out \\x1b[31mred\\x07"); assert 0, "a | b\\n<c>"
def test_crash(): os.abort()
def test_skip(): pytest.skip("why & how")
"""


@pytest.fixture(scope="module")
def mixed_run(new_suite: Callable[[], Suite]) -> tuple[Suite, Result]:
    suite = new_suite().write(test_mixed=MIXED)
    return suite, suite.pytest("--junitxml=plain.xml")


@pytest.fixture
def mixed(mixed_run: tuple[Suite, Result]) -> RunRecord:
    return mixed_run[1].record


def test_junit_is_what_jenkins_gitlab_and_github_read(mixed) -> None:
    root = ElementTree.fromstring(run_junit.render(mixed))
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == 7
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == 1
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error")) == 1
    assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) == 1
    for case in cases:
        assert case.get("classname")
        assert case.get("name")
        float(case.attrib["time"])
        properties = {p.get("name"): p.get("value") for p in case.findall("properties/property")}
        assert properties["device"] == "cpu0"
        assert properties["worker"]
    crash = next(c for c in cases if c.get("name") == "test_crash")
    error = present(crash.find("error")).attrib
    assert error["type"] == "crashed"
    assert "SIGABRT" in error["message"]
    assert len(crash.findall("rerunFailure")) == 1, "the first attempt is visible"


def test_junit_names_are_those_of_plain_pytest(mixed_run, mixed) -> None:
    theirs = ElementTree.parse(mixed_run[0].path / "plain.xml").getroot()
    ours = ElementTree.fromstring(run_junit.render(mixed))

    def names(root: ElementTree.Element) -> set[tuple[str | None, str | None]]:
        return {(case.get("classname"), case.get("name")) for case in root.iter("testcase")}

    assert names(ours) == names(theirs)


def test_json_and_markdown_count_the_same(mixed) -> None:
    document = json.loads(run_json.render(mixed))
    assert document["counts"] == {"passed": 4, "failed": 1, "skipped": 1, "crashed": 1}
    assert document["complete"] is True
    text = run_markdown.render(mixed)
    assert "4 passed, 1 failed, 1 skipped, 1 crashed" in text
    assert "a \\| b" in text


def test_annotations_cannot_be_broken_by_a_message(mixed) -> None:
    lines = run_markdown.commands(mixed)
    assert len(lines) == 2
    assert all("\n" not in line and line.startswith("::error file=test_mixed.py,title=") for line in lines)


def test_github_gets_annotations_and_a_summary(suite, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "summary.md"))
    suite.write(test_g="def test_bad(): assert 0\n")
    output = suite.pytest().output
    assert "::group::ondol annotations" in output
    assert "::error file=test_g.py,title=failed%3A test_g.py%3A%3Atest_bad::assert 0" in output
    assert "1 failed" in (suite.path / "summary.md").read_text()


def journal_with(path: Path, *events: journal.Event) -> Path:
    made = Journal(path)
    for event in events:
        made.write(event)
    made.close()
    return path


PLANNED = journal.Planned(["t.py::a", "t.py::b", "t.py::c"])
START_A = journal.Start(0, 1, "d0", "w", "d0", False)
END_A = journal.End(0, 1, "passed", "", "", 0.1)
VERDICT_A = journal.Verdict(0, "passed", False, "")
START_B = START_A._replace(item=1)


def test_a_journal_cut_off_anywhere_accounts_for_every_item(tmp_path) -> None:
    whole = journal_with(tmp_path / "whole", journal.Run(), PLANNED, START_A, END_A, VERDICT_A, START_B).read_bytes()
    start = whole.index(b"\n", whole.index(b"planned"))
    for cut in range(start, len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:cut])
        record = load(path)
        assert sum(record.counts().values()) == 3
        assert not record.complete
        assert status_of(record) != 0
        ElementTree.fromstring(run_junit.render(record))
    assert load(tmp_path / "whole").counts() == {"passed": 1, "crashed": 1, "not-run": 1}


def test_a_run_of_nothing_is_never_success(tmp_path) -> None:
    path = journal_with(tmp_path / "j", journal.Planned([]), journal.Over(0, {}))
    assert status_of(load(path)) == 121


def test_something_that_is_no_journal_is_said(tmp_path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(UsageError):
        load(tmp_path / "x")


def test_the_command_writes_what_is_asked(mixed_run, tmp_path) -> None:
    command = [sys.executable, "-m", "ondol", "report", str(mixed_run[1].journal), "--junit", "a.xml", "--json", "-"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert json.loads(done.stdout)["counts"]["failed"] == 1
    ElementTree.parse(tmp_path / "a.xml")


def test_an_item_that_was_tried_on_two_devices_is_one_test_case_in_pytests_junit(suite) -> None:
    """pytest's own JUnit file tells test cases apart by their id and their worker."""
    suite.write(
        test_a="""
        import os
        def test_crash():
            if not os.path.exists("crashed"):
                open("crashed", "w").close()
                os.abort()
        def test_other(): pass
        """
    )
    result = suite.pytest("--junitxml=results.xml", devices="sim:2")
    (crash,) = (item for item in result.record.items if item.nodeid.endswith("test_crash"))
    assert len({attempt.device for attempt in crash.attempts}) == 2
    cases = ElementTree.parse(suite.path / "results.xml").findall(".//testcase")
    assert sorted(case.attrib["name"] for case in cases) == ["test_crash", "test_other"]
