"""CI systems read `--junitxml`: it must say as much about a crash or a hang as `ondol report --junit` does."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from handmade import present
from ondol.report import run_junit, run_markdown
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

ITEMS = """
import os, pytest, time
def test_crash():
    print("printed before the crash")
    os.abort()
@pytest.mark.ondol(timeout=5)
def test_hang():
    print("printed before the hang")
    def deep_inside():
        time.sleep(600)
    deep_inside()
@pytest.mark.skip(reason="no card here")
def test_skipped(): pass
@pytest.mark.xfail(reason="known bug 7")
def test_xfailed(): assert 0
"""


@pytest.fixture
def ran(suite: Suite) -> Result:
    return suite.write(test_m=ITEMS).pytest("--junitxml=x.xml", "--ondol-grace=0.2")


@pytest.fixture
def cases(ran: Result) -> list[dict[str | None, ElementTree.Element]]:
    plugin = ElementTree.parse(present(ran.journal).parent / "x.xml").getroot()
    report = ElementTree.fromstring(run_junit.render(ran.record))
    return [{case.get("name"): case for case in root.iter("testcase")} for root in (plugin, report)]


def properties(case: ElementTree.Element) -> dict[str | None, str | None]:
    return {p.get("name"): p.get("value") for p in case.iter("property")}


@pytest.mark.fault
def test_a_crash_and_a_hang_have_time_stacks_output_device_and_attempts(cases) -> None:
    for number, found in enumerate(cases):
        prefix = "" if number else "ondol_"
        for name, attempts in (("test_crash", "2"), ("test_hang", "1")):
            case = found[name]
            text = " ".join(case.itertext())
            assert float(case.get("time")) > (5.0 if name == "test_hang" else 0.0)
            assert name in text, "its stack"
            assert f"printed before the {name[5:]}" in text
            told = properties(case)
            assert (told[prefix + "device"], told.get(prefix + "attempts", "1")) == ("cpu0", attempts)
        assert "deep_inside" in " ".join(found["test_hang"].itertext())
        hang = found["test_hang"]
        (message,) = [one.get("message") for one in (*hang.iter("failure"), *hang.iter("error"))]
        assert "longer than 5 s" in message
    assert len(cases[0]) == 4


@pytest.mark.fault
def test_the_reason_of_a_skip_is_in_both(cases) -> None:
    for found in cases:
        for name, reason in (("test_skipped", "no card here"), ("test_xfailed", "known bug 7")):
            (skipped,) = found[name].iter("skipped")
            assert reason in skipped.get("message")


@pytest.mark.fault
def test_what_is_shown_on_the_terminal_is_shown_once(ran: Result) -> None:
    assert ran.output.count("printed before the hang") == 1


def test_a_failed_preparation_did_not_fail_on_teardown(suite) -> None:
    suite.write(
        rt="class Slow:\n    def prepare(self, task): raise SyntaxError('bad kernel')\n    def run(self, task): pass\n"
    )
    (suite.path / "t.ondol.toml").write_text('[runtime.r]\nclass = "rt:Slow"\n[[task]]\nname = "a"\nruntime = "r"\n')
    suite.pytest("--junitxml=x.xml", "t.ondol.toml")
    (error,) = ElementTree.parse(suite.path / "x.xml").getroot().iter("error")
    assert "on setup" in error.attrib["message"]
    assert "bad kernel" in error.attrib["message"] + (error.text or "")


def test_devices_that_were_set_aside_are_in_it(suite) -> None:
    suite.write(test_m="import os, pytest\ndef test_a(): os.abort()\n")
    probe = "--ondol-probe=sh -c 'echo melted; exit 1'"
    result = suite.pytest("--junitxml=x.xml", probe, "--ondol-retries=1", devices="sim:1")
    (quarantine,) = result.record.quarantines
    root = ElementTree.parse(suite.path / "x.xml").getroot()
    told = {p.attrib["name"]: p.attrib["value"] for p in root.iterfind("testsuite/properties/property")}
    assert "melted" in told[f"quarantine.{quarantine.device}"]


def test_every_bad_verdict_is_a_row_of_the_step_summary(suite) -> None:
    from ondol.fleet import journal
    from ondol.fleet.record import RunRecord
    from ondol.fleet.verdict import Verdict

    record = RunRecord()
    bad = [v for v in Verdict if v.bad or v is Verdict.DEVICE_LOST]
    record.apply(journal.Planned([f"t.py::{v.value}" for v in bad]), 1.0)
    for number, verdict in enumerate(bad):
        record.apply(journal.Verdict(number, verdict.value, False, "why"), 1.0)
    text = run_markdown.render(record)
    assert [v.value for v in bad if f"| `t.py::{v.value}` | {v.value} |" not in text] == []


@pytest.mark.parametrize("devices", ["cpu:1", "cpu:2"])
def test_a_finaliser_that_fails_late_is_told_in_its_items_test_case(suite, devices) -> None:
    """The item was already told to have passed: a second case of its name would count it as good and as bad."""
    suite.write(
        conftest="""
        import pytest
        @pytest.fixture(scope="session", autouse=True)
        def closes_badly():
            yield
            print("printed while it closed")
            raise RuntimeError("late & bad")
        """,
        test_a="def test_1(): pass\ndef test_2(): pass\n",
        test_b="def test_3(): pass\ndef test_4(): pass\n",
    )
    ran = suite.pytest("--junitxml=x.xml", devices=devices)
    cases = list(ElementTree.parse(suite.path / "x.xml").getroot().iter("testcase"))
    assert sorted(present(case.get("name")) for case in cases) == ["test_1", "test_2", "test_3", "test_4"]
    errors = {case.get("name"): [error.get("message") for error in case.iter("error")] for case in cases}
    bad = [name for name, verdict in ran.verdicts.items() if verdict == "error"]
    assert bad
    for name, messages in errors.items():
        assert len(messages) == (name in bad)
        assert all("late & bad" in present(message) for message in messages)
