"""A test that is known to fail keeps every run red, or is forgiven for ever: an entry mutes it, with a reason, until a date."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest

from handmade import present
from ondol.cli import report as report_command
from ondol.errors import UsageError
from ondol.fleet import known
from ondol.report import run_json, run_junit, run_markdown

pytestmark = pytest.mark.warm_pytest

FAR, PAST = "2999-01-01", "2020-01-01"


def write_known(path: Path, *entries: tuple[str, str]) -> None:
    rows = [f'[[known]]\ntest = "{test}"\nreason = "ticket 7"\nuntil = {until}\n' for test, until in entries]
    (path / known.FILE).write_text("\n".join(rows))


MIXED = """
    import os, pytest, time
    def test_good(): pass
    def test_bad(): assert 0, "as ever"
    def test_crash(): os.abort()
    @pytest.fixture
    def broken(): assert 0
    def test_setup(broken): pass
    @pytest.fixture
    def breaks():
        yield
        assert 0
    def test_teardown(breaks): pass
    @pytest.fixture(scope="module")
    def late():
        yield
        assert 0
    def test_z_late(late): pass
"""


@pytest.mark.fault
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_muted_failures_are_run_shown_and_turn_nothing_red(suite, start: str) -> None:
    suite.write(test_m=MIXED)
    write_known(suite.path, ("test_m.py::test_[bcstz]*", FAR), ("test_m.py::test_*", FAR))
    result = suite.pytest("--junitxml=theirs.xml", "--ondol-retries=0", "--ondol-judge=off", f"--ondol-start={start}")
    record = result.record
    assert result.status == 0, result.output
    assert {i.nodeid.partition("::")[2]: i.verdict for i in record.items if i.muted} == {
        "test_bad": "failed",
        "test_crash": "crashed",
        "test_setup": "error",
        "test_teardown": "error",
        "test_z_late": "error",
    }
    assert record.counts() == {"passed": 1, "known": 5}
    assert (record.bad, record.status, report_command.status_of(record)) == (False, 0, 0)
    assert "known: test_m.py::test_bad (ticket 7, until 2999-01-01)" in result.output
    assert "5 known" in result.summary
    assert "failed" not in result.summary
    assert "error" not in result.summary
    for xml in ((suite.path / "theirs.xml").read_text(), run_junit.render(record)):
        suite_node = present(ElementTree.fromstring(xml).find("testsuite"))
        assert (suite_node.get("failures"), suite_node.get("errors")) == ("0", "0")
        assert "ticket 7" in xml
    markdown = run_markdown.render(record)
    assert "1 passed, 5 known" in markdown
    assert "Known to fail:" in markdown
    assert "| `test_m.py::test_bad`" not in markdown
    assert run_markdown.commands(record) == []
    told = json.loads(run_json.render(record))
    assert [item["known"] for item in told["items"]][1] == "ticket 7, until 2999-01-01"


def test_what_nobody_named_is_as_red_as_ever(suite) -> None:
    suite.write(test_m="def test_a(): assert 0\ndef test_b(): assert 0\n")
    write_known(suite.path, ("test_m.py::test_a", FAR))
    result = suite.pytest("--ondol-judge=off")
    assert result.status == 1
    assert "1 failed" in result.summary
    assert "1 known" in result.summary
    (failed,) = ElementTree.fromstring(run_junit.render(result.record)).iter("failure")
    assert failed is not None
    result = suite.pytest("--ondol-judge=off", "--ondol-no-known")
    assert (result.status, result.record.counts()) == (1, {"failed": 2})


def test_a_muted_failure_does_not_stop_a_run_that_stops_at_the_first(suite) -> None:
    suite.write(test_m="def test_a(): assert 0\ndef test_b(): pass\n")
    write_known(suite.path, ("test_m.py::test_a", FAR))
    result = suite.pytest("-x", "--ondol-judge=off")
    assert (result.status, result.verdicts) == (0, {"test_a": "failed", "test_b": "passed"})


@pytest.mark.parametrize("passes", [True, False])
def test_an_entry_past_its_date_is_red_and_named_everywhere(suite, passes: bool) -> None:
    suite.write(test_m=f"def test_a(): assert {passes}\ndef test_b(): pass\n")
    write_known(suite.path, ("test_m.py::test_a", PAST))
    result = suite.pytest("--ondol-judge=off")
    record = result.record
    assert (result.status, record.status, report_command.status_of(record)) == (1, 1, 1)
    text = "ondol-known.toml: test_m.py::test_a (ticket 7; until 2020-01-01) is past its date"
    assert f"error: {text}" in result.output
    assert record.counts() == ({"passed": 2} if passes else {"passed": 1, "failed": 1})
    assert text in run_junit.render(record)
    assert int(ElementTree.fromstring(run_junit.render(record)).attrib["errors"]) == 1
    assert "is past its date" in run_markdown.render(record)
    assert json.loads(run_json.render(record))["expired"] == [text]
    assert any("is past its date" in line for line in run_markdown.commands(record))
    elsewhere = suite.pytest("-k", "test_b")
    assert elsewhere.status == 0, "an entry that this run is not about"


def test_an_entry_for_a_test_that_is_not_there_gives_a_note(suite) -> None:
    suite.write(test_m="def test_a(): pass\ndef test_b(): pass\n", test_n="def test_c(): pass\n")
    entries = [
        ("test_m.py::test_gone", FAR),
        ("removed.py::test_x", FAR),
        ("test_n.py::test_z", FAR),
        ("test_*::*", FAR),
    ]
    write_known(suite.path, *entries, ("test_m.py::test_b", FAR))
    result = suite.pytest("test_m.py", "-k", "test_a")
    assert result.status == 0
    notes = [line for line in result.output.splitlines() if line.startswith("note: ondol-known.toml")]
    assert notes == [f"note: ondol-known.toml: there is no test {name}" for name in ("test_m.py::test_gone", "removed.py::test_x")]  # fmt: skip


GOOD = {"test": "t.py::x", "reason": "r", "until": date(2030, 1, 1)}


@pytest.mark.parametrize(
    "told",
    [
        {"known": {}},
        {"mute": []},
        {"known": ["x"]},
        {"known": [{"test": "x"}]},
        {"known": [{**GOOD, "more": 1}]},
        {"known": [{**GOOD, "until": "soon"}]},
        {"known": [{**GOOD, "until": 3}]},
        {"known": [{**GOOD, "reason": " "}]},
        {"known": [{**GOOD, "test": ["t"]}]},
        {"known": [GOOD] * (known.MOST + 1)},
    ],
)
def test_a_file_that_makes_no_sense_is_an_error(told: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=known.FILE):
        known.entries(told)


@pytest.mark.parametrize("text", ["[[known", "\0", "[[known]]\ntest = 'a'\nreason = 'b'\nuntil = 2020-13-01\n"])
def test_a_file_that_cannot_be_read_runs_nothing(suite, text: str) -> None:
    suite.write(test_m="def test_a(): open('ran', 'w')\n")
    (suite.path / known.FILE).write_text(text)
    result = suite.pytest()
    assert result.status == 4
    assert known.FILE in result.output
    assert "--no-known" in result.output
    assert not (suite.path / "ran").exists()
    assert suite.pytest("--ondol-no-known").status == 0


def test_brackets_of_parameters_mean_themselves() -> None:
    entry = known.KnownFailure("t.py::x[a-1]", "r", date(2030, 1, 1))
    assert entry.matches("t.py::x[a-1]")
    assert not entry.matches("t.py::xa")
    assert known.KnownFailure("t.py::x[a-*]", "r", date(2030, 1, 1)).matches("t.py::x[a-1]")
    assert not known.KnownFailure("t.py::x[a-*]", "r", date(2030, 1, 1)).matches("t.py::xa")


def test_the_last_day_is_muted_still_and_a_hostile_pattern_costs_little() -> None:
    last = date(2030, 1, 1)
    entry = known.KnownFailure("*a" * 60 + "*b", "r", last)
    ids = ["t.py::" + "a" * 2000, "t.py::x"]
    found, _ = known.judge([entry, known.KnownFailure("t.py::x", "r", last)], ids, ids, lambda _: True, last)
    assert (list(found.muted), found.expired) == (["1"], [])
