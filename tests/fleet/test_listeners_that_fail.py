"""A suite's own hook that raises where results are shown, because what it looks up was noted in a worker: in plain
pytest there is one process, with pytest-xdist the run ends with INTERNALERROR and all results are lost.
"""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.warm_pytest

ONCE = ["--ondol-judge=off", "--ondol-retries=0"]
#: The conftest of FlagGems, a library of Triton kernels.
NOTES = """
    import json, pytest
    results = {}
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        results[item.nodeid] = {"result": None}
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(report):
        if report.when == "call":
            results[report.nodeid]["result"] = report.outcome
"""
SIX = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_a(n): assert n != 3\n"


def test_all_results_are_shown_and_the_hook_is_named_once(suite) -> None:
    suite.write(conftest=NOTES, test_a=SIX)
    assert "1 failed, 5 passed" in suite.plain().summary
    ours = suite.pytest(*ONCE, "-v", devices="cpu:2")
    assert "1 failed, 5 passed" in ours.summary, ours.output
    assert ours.status == 1
    shown = [line.split()[-1] for line in ours.output.splitlines() if line.startswith("[gw") and "%]" in line]
    assert sorted(shown) == [f"test_a.py::test_a[{n}]" for n in range(6)]
    assert len(re.findall(r"conftest.py:\d+: pytest_runtest_logreport raised KeyError", ours.output)) == 1
    assert "INTERNALERROR" not in ours.output


def test_those_who_heard_before_it_hear_once_and_those_after_it_hear_all(suite) -> None:
    suite.write(
        conftest="""
            import os, pytest
            def heard(who, report):
                if report.when == "call" and os.getpid() == MAIN:
                    with open(os.environ["LOG"], "a") as log: log.write(f"{who}\\n")
            MAIN = os.getpid()
            class Before:
                @pytest.hookimpl(tryfirst=True)
                def pytest_runtest_logreport(self, report): heard("before", report)
            class Fails:
                def pytest_runtest_logreport(self, report):
                    if os.getpid() == MAIN: raise LookupError("not here")
            class After:
                @pytest.hookimpl(trylast=True)
                def pytest_runtest_logreport(self, report): heard("after", report)
            def pytest_configure(config):
                for one in (Before(), Fails(), After()): config.pluginmanager.register(one)
        """,
        test_a="def test_1(): pass\ndef test_2(): pass\n",
    )
    ours = suite.pytest(*ONCE)
    assert "2 passed" in ours.summary, ours.output
    assert sorted(ours.log) == ["after", "after", "before", "before"]


def test_a_hook_that_ends_the_session_on_purpose_still_does(suite) -> None:
    suite.write(
        conftest="""
            import pytest
            def pytest_runtest_logreport(report):
                if report.failed: pytest.exit("enough", returncode=7)
        """,
        test_a="def test_1(): assert 0\ndef test_2(): pass\n",
    )
    ours = suite.pytest(*ONCE)
    assert ours.status == 7, ours.output
    assert "enough" in ours.output


def test_a_hook_that_fails_in_a_worker_is_named_in_a_line_and_shown_whole_once(suite) -> None:
    """The summary had the whole traceback, as one line."""
    suite.write(
        conftest="""
            import os
            MAIN = os.getpid()
            def pytest_runtest_logreport(report):
                if os.getpid() != MAIN and report.when == "call": raise LookupError("not here")
        """,
        test_a="def test_1(): pass\ndef test_2(): pass\n",
    )
    ours = suite.pytest(*ONCE)
    assert ours.verdicts == {"test_1": "error", "test_2": "error"}
    assert (
        "error: test_a.py::test_1 and 1 more (raised outside of the test, which pytest did not catch: LookupError: not here)"
        in ours.output
    )
    assert re.search(r'^  File ".*conftest.py", line 5, in pytest_runtest_logreport$', ours.output, re.MULTILINE)
