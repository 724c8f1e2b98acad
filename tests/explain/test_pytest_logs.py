"""Failures are counted per cause, whichever way pytest was asked to print them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain import suite
from explain.found_faults import find
from ondol.explain import match
from ondol.explain.explainer import Explanation
from ondol.explain.pytest_log import PytestLog
from ondol.explain.signature import load

OPTIONS = [
    (),
    ("-v",),
    ("-q",),
    ("--tb=short",),
    ("--tb=native",),
    ("-n", "2"),
    ("-n", "2", "-v"),
    ("-rA", "--color=yes"),
    ("--durations=3",),
]


def explain(*texts: str) -> Explanation:
    explanation = Explanation(load())
    for number, text in enumerate(texts):
        explanation.add(f"log{number}", PytestLog(text.split("\n")))
    return explanation


def counts(explanation: Explanation) -> dict[str, int]:
    return {fault.signature.id: len(fault.tests) for fault in explanation.faults}


def check_nightly(explanation: Explanation) -> None:
    """21 from the fault and one in a fixture from it too; one from a full disk; two of their own."""
    assert counts(explanation) == {"triton-foreign-key-dir": 22, "disk-full": 1}
    assert explanation.failed == 25
    assert sorted(name.rpartition("::")[2] for name in explanation.unexplained) == ["test_forward", "test_wrong_result"]
    taken_down = explanation.faults[0].tests
    assert len(set(taken_down)) == 22
    for name, count in suite.TAKEN_DOWN.items():
        assert sum(f"test_{name}.py::test_fwd[" in test for test in taken_down) == count, name


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_seed_000_is_counted_right(nightly: Path, options: tuple[str, ...]) -> None:
    check_nightly(explain(suite.run(nightly, *options)))


def test_tests_without_a_traceback_are_not_blamed_on_the_cache(nightly: Path) -> None:
    """80 columns cut the reason off: then it is not known, and is said so."""
    short = explain(suite.run(nightly, "--tb=no"))
    assert counts(short) == {}
    assert len(short.unexplained) == 25
    check_nightly(explain(suite.run(nightly, "--tb=no", "-vv")))


def test_hundreds_of_failures_from_one_fault_are_said_once(log: str) -> None:
    (first, _) = explain(log).faults
    assert first.line.startswith("E ")
    assert "tmp.pid_" in first.line
    assert log.split("\n")[first.line_number - 1] == first.line


@pytest.mark.parametrize(
    "prefix",
    ["2026-03-14T04:00:12.1234567Z ", "[2026-03-14T04:00:12] ", "web-1  | ", "2026-03-14T04:00:12.123456Z 01O "],
)
def test_timestamps_do_not_hide_the_sections(log: str, prefix: str) -> None:
    check_nightly(explain("\n".join(prefix + line for line in log.split("\n"))))


def test_windows_newlines_do_not_hide_the_sections(log: str) -> None:
    check_nightly(explain(log.replace("\n", "\r\n")))


@settings(max_examples=15, deadline=None)
@given(size=st.integers(50, 5000))
def test_counts_do_not_depend_on_where_a_block_ends(log: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(match, "_BLOCK", size)
        check_nightly(explain(log))


def test_failures_of_a_run_that_was_killed_are_counted(log: str) -> None:
    """No summary: the sections alone have to do."""
    cut = explain(log[: log.index("short test summary")])
    assert counts(cut)["triton-foreign-key-dir"] == 22
    assert cut.failed == 25


def test_live_lines_alone_are_counted(nightly: Path) -> None:
    text = suite.run(nightly, "-v")
    live = explain(text[: text.index("= ERRORS =")])
    assert live.failed == len(live.unexplained) == 25


def test_faults_of_two_runs_are_kept_apart(log: str) -> None:
    other = log.replace("tmp.pid_", "other_").replace(
        "[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"
    )
    both = explain(log + other)
    assert counts(both) == {"triton-foreign-key-dir": 22, "disk-full": 2}
    assert both.failed == 50
    assert all("::" in test for fault in both.faults for test in fault.tests), "named by their titles"
    assert counts(explain(log, other)) == counts(both)


def test_parts_of_a_fault_in_two_tests_make_none() -> None:
    frame = "/opt/venv/lib/python3.11/site-packages/triton/runtime/cache.py:79: in get_group"
    error = "E   json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    text = f"=== FAILURES ===\n___ test_a ___\n{frame}\nE   AssertionError\n___ test_b ___\n{error}\n=== short test summary info ===\nFAILED x.py::test_a - A\nFAILED x.py::test_b - J"
    assert find(text)
    assert explain(text).faults == []
    assert explain(text.replace("E   AssertionError", error)).faults[0].tests == ("x.py::test_a",)


def test_text_in_the_source_is_not_taken_for_its_message() -> None:
    """pytest prints the program around the failure; a test of error handling is full of errors."""
    source = '    with pytest.raises(OSError, match="[Errno 28] No space left on device"):'
    failure = f"=== FAILURES ===\n___ test_a ___\n\n{source}\n>       assert 'OSError: [Errno 28] No space left on device' == 1\nE   AssertionError"
    summary = "=== short test summary info ===\nFAILED x.py::test_a - A"
    assert explain(f"{failure}\n{summary}").faults == []
    printed = f"--- Captured stderr call ---\n    make: write error: No space left on device\n{summary}"
    assert explain(f"{failure}\n{printed}").faults[0].tests == ("x.py::test_a",)


def test_same_name_in_two_files_is_two_tests() -> None:
    full = "E   OSError: [Errno 28] No space left on device"
    text = f"=== FAILURES ===\n___ test_a ___\nE   AssertionError\n___ test_a ___\n{full}\n=== short test summary info ===\nFAILED x.py::test_a - A\nFAILED y.py::test_a - O"
    explanation = explain(text)
    assert explanation.faults[0].tests == ("y.py::test_a",)
    assert explanation.unexplained == ["x.py::test_a"]


@pytest.mark.parametrize("size", [1, match._BLOCK])
def test_reason_on_the_line_below_is_found(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the text of seed 000."""
    monkeypatch.setattr(match, "_BLOCK", size)
    fault = "PermissionError: [Errno 13] Permission denied: '/ci-cache/triton/.../tmp.pid_...'"
    text = f"FAILED tests/ops/test_gla.py::test_bwd[2-64-False]\n{fault}\nFAILED tests/ops/test_mamba.py::test_fwd\ntorch._inductor.exc.InductorError: {fault}\n\nLikely Cause"
    explanation = explain(text)
    assert counts(explanation) == {"triton-foreign-key-dir": 2}
    assert explanation.failed == 2


def test_crashed_worker_counts_as_one_test(request: pytest.FixtureRequest) -> None:
    text = (Path(__file__).parents[1] / "logs" / "ordinary" / "worker-crash.log").read_text()
    assert explain(text).unexplained == ["tests/ops/test_moe.py::test_moe_fused[8-2]"]


def test_collection_error_is_a_failure() -> None:
    text = (Path(__file__).parents[1] / "logs" / "ordinary" / "pytest-collection.log").read_text()
    assert explain(text).unexplained == ["sub/test_fails_to_collect.py"]


def test_evidence_is_the_first() -> None:
    disk = "OSError: [Errno 28] No space left on device"
    inner = f"=== FAILURES ===\n___ test_a ___\n{disk}\n=== short test summary info ===\nFAILED x.py::test_a - O"
    assert explain(f"{inner}\n\n{disk}").faults[0].line_number == 3
    assert explain(f"{disk}\n{inner}").faults[0].line_number == 1
    assert explain(f"a\nb\nc\nd\n{disk}", disk).faults[0][3:5] == ("log0", 5)


def test_fault_outside_of_tests_is_not_left_out() -> None:
    explanation = explain(
        "error: Failed to install: rich\n  cause: The wheel is invalid: Metadata field Name not found"
    )
    assert counts(explanation) == {"uv-torn-archive": 0}
    assert explanation.faults[0].times == 1


def test_warning_is_not_given_as_the_cause() -> None:
    warning = "UserWarning: Error reading persistent compilation cache entry for 'jit_f': x"
    text = f"=== FAILURES ===\n___ test_a ___\nE   AssertionError\n--- Captured stderr call ---\n{warning}\n=== short test summary info ===\nFAILED x.py::test_a - A"
    explanation = explain(text)
    assert explanation.faults == []
    assert explanation.unexplained == ["x.py::test_a"]
    assert [fault.signature.id for fault in explanation.warnings] == ["jax-bad-entry"]


def test_order_of_faults_is_not_by_chance() -> None:
    disk, torn = "OSError: [Errno 28] No space left on device", "The wheel is invalid: Metadata field Name not found"
    assert list(counts(explain(f"{torn}\n\n{disk}"))) == ["uv-torn-archive", "disk-full"]
    assert list(counts(explain(f"{disk}\n\n{torn}"))) == ["disk-full", "uv-torn-archive"]
    text = f"{torn}\n=== FAILURES ===\n___ test_a ___\n{disk}\n=== short test summary info ===\nFAILED x.py::test_a - O"
    assert list(counts(explain(text))) == ["disk-full", "uv-torn-archive"]


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="_= FAILUREOS.py:x[]-\n\t%", max_size=300))
def test_no_line_stops_the_reader(text: str) -> None:
    explain(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("start", ["FAILED a.py::", "_ x", "= x", "a.py::x FAILED", "[ 10%] FAILED a.py::x"])
@pytest.mark.parametrize("filler", [" ", " _", " =", " - ", "::"])
def test_a_long_line_does_not_stop_the_reader(start: str, filler: str) -> None:
    """Were the lines read to their ends, some would take minutes; the test would be ended for its time."""
    line = start + filler * 2 * 10**5 + "x"
    explain(f"=== FAILURES ===\n{line}\n=== short test summary info ===\n{line}")


_BIG = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20))
from ondol.explain.explainer import Explanation
from ondol.explain.pytest_log import PytestLog
from ondol.explain.signature import load

def lines():
    for number in range(14000):
        yield "tests/x.py::test PASSED " + "x" * 10000
    yield "tar: write error: No space left on device"

explanation = Explanation([known for known in load() if known.id == "disk-full"])
explanation.add("big", PytestLog(lines()))
print(explanation.faults[0].line_number)
"""


def test_a_big_log_does_not_fill_the_memory() -> None:
    """140 MB of it in 100 MiB of address space."""
    done = subprocess.run(
        [sys.executable, "-c", _BIG],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(suite.ROOT / "src")},
    )
    assert done.stdout.strip() == "14001", done.stderr


def test_names_in_the_corpus_are_read(request: pytest.FixtureRequest) -> None:
    text = (Path(__file__).parents[1] / "logs" / "ordinary" / "pytest-assertions.log").read_text()
    explanation = explain(text)
    (said,) = re.findall(r"(\d+) failed, .*?(\d+) errors? in", text)
    assert explanation.failed == len(explanation.unexplained) == int(said[0]) + int(said[1])
