"""JUnit XML: the same counts as in the log, at any size, from anybody."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain import suite
from ondol.explain.explainer import Explanation
from ondol.explain.junit_log import JUnitLog
from ondol.explain.signature import load

FULL = "OSError: [Errno 28] No space left on device"


def explain(data: bytes, size: int = 1 << 16) -> Explanation:
    explanation = Explanation(load())
    explanation.add("junit.xml", JUnitLog(data[at : at + size] for at in range(0, len(data), size)))
    return explanation


@pytest.fixture(scope="module")
def junit(nightly: Path, log: str) -> bytes:
    return (nightly / "junit.xml").read_bytes()


def check_nightly(explanation: Explanation) -> None:
    assert {fault.signature.id: len(fault.tests) for fault in explanation.faults} == {
        "triton-foreign-key-dir": 22,
        "disk-full": 1,
    }
    assert explanation.failed == 25
    assert sorted(explanation.unexplained) == [
        "tests.ops.test_own.TestOps::test_forward",
        "tests.ops.test_own::test_wrong_result",
    ]
    assert explanation.troubles == []


def test_seed_000_is_counted_right(junit: bytes) -> None:
    check_nightly(explain(junit))


@settings(max_examples=10, deadline=None)
@given(size=st.integers(7, 4000))
def test_counts_do_not_depend_on_how_the_file_arrives(junit: bytes, size: int) -> None:
    check_nightly(explain(junit, size))


def test_line_number_is_the_files(junit: bytes) -> None:
    fault = explain(junit).faults[0]
    line = junit.decode().split("\n")[fault.line_number - 1]
    assert "tmp.pid_" in line


def case(inner: str, name: str = "test_a") -> str:
    return f'<testcase classname="ops" name="{name}">{inner}</testcase>'


def report(*cases: str) -> bytes:
    return f'<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="s">{"".join(cases)}</testsuite></testsuites>'.encode()


@pytest.mark.parametrize(
    "inner",
    [
        f'<failure message="{FULL}"/>',
        f"<error>{FULL}</error>",
        f"<failure><![CDATA[{FULL}]]></failure>",
        f"<failure>assert 0</failure><system-err>{FULL}</system-err>",
        f"<system-out>{FULL}</system-out><failure>assert 0</failure>",
        f'<failure message="a&#10;b&#10;{FULL}">x</failure>',
        f"<failure>\n  <nested>{FULL}</nested></failure>",
    ],
)
def test_every_place_for_text_is_read(inner: str) -> None:
    explanation = explain(report(case(inner), case("", "test_b")))
    assert [fault.tests for fault in explanation.faults] == [("ops::test_a",)]
    assert explanation.failed == 1


def test_output_of_a_test_that_passed_is_not_blamed() -> None:
    explanation = explain(
        report(case(f"<system-out>{FULL}</system-out>"), case(f"<skipped>{FULL}</skipped>", "test_b"))
    )
    assert (explanation.failed, explanation.faults) == (0, [])


def test_output_of_the_suite_is_searched_too() -> None:
    explanation = explain(report(case(""), f"<system-err>{FULL}</system-err>"))
    assert [(fault.tests, fault.times) for fault in explanation.faults] == [((), 1)]


def test_report_of_a_killed_run_is_read() -> None:
    whole = report(
        case(f"<failure>{FULL}</failure>"), case(f"<failure>x</failure><system-out>{FULL}</system-out>", "test_b")
    )
    cut = explain(whole[: whole.rindex(b"</system-out>")])
    assert [fault.tests for fault in cut.faults] == [("ops::test_a", "ops::test_b")]
    assert "could be read only up to line 1" in cut.troubles[0]


def test_control_characters_do_not_hide_what_came_before() -> None:
    explanation = explain(report(case(f"<failure>{FULL}</failure>"), case("<failure>\x01</failure>", "test_b")))
    assert explanation.faults[0].tests == ("ops::test_a",)
    assert explanation.troubles


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    + "]>"
)


@pytest.mark.parametrize(
    "head",
    [
        LAUGHS,
        '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a11 SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1:9/">%a;]>',
    ],
    ids=["a billion laughs", "a file of ours", "a request of ours"],
)
def test_entities_are_not_expanded(head: str) -> None:
    data = head.encode() + b"<testsuites>" + case(f"<failure>{FULL} &a11;</failure>").encode() + b"</testsuites>"
    explanation = explain(data)
    assert explanation.faults == []
    assert "declares entities" in explanation.troubles[0]


def test_text_in_the_source_is_not_taken_for_its_message() -> None:
    source = f"    raise Other('{FULL}')\n&gt;   handle('{FULL}')\nE   Other"
    assert explain(report(case(f"<failure>{source}</failure>"))).faults == []
    assert explain(report(case(f"<failure>{source}</failure><system-out>    {FULL}</system-out>"))).faults


def test_two_tests_of_one_name_are_two() -> None:
    explanation = explain(report(case(f"<failure>{FULL}</failure>"), case("<failure>x</failure>")))
    assert explanation.failed == 2
    assert len(explanation.unexplained) == 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=500))
def test_no_bytes_stop_the_reader(data: bytes) -> None:
    explain(b"<testsuites>" + data)
    explain(data)


_BIG = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
from ondol.explain.explainer import Explanation
from ondol.explain.junit_log import JUnitLog
from ondol.explain.signature import load

def chunks():
    yield b"<testsuites>"
    for number in range(2):
        yield b'<testcase name="t%d"><failure>tar: write error: No space left on device</failure><system-out>' % number
        for _ in range(4800):
            yield b"x" * 60000 + b"\\n"
        yield b"</system-out></testcase>"
    yield b"</testsuites>"

explanation = Explanation(load())
explanation.add("big", JUnitLog(chunks()))
print(len(explanation.faults[0].tests))
"""


def test_a_big_report_does_not_fill_the_memory() -> None:
    """Almost 600 MB of it in 300 MiB of address space."""
    done = subprocess.run(
        [sys.executable, "-c", _BIG],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(suite.ROOT / "src")},
    )
    assert done.stdout.strip() == "2", done.stderr


def test_the_limit_of_memory_is_a_limit() -> None:
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)); x = bytearray(400 << 20)"
    )
    assert resource.RLIMIT_AS is not None
    assert subprocess.run([sys.executable, "-c", limited], capture_output=True, check=False).returncode == 1
