"""What a plugin or a conftest keeps in its process until the session ends: a worker that just leaves takes it along."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable

import pytest

from people import ROOT
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

ONCE = ["--ondol-judge=off", "--ondol-retries=0"]
WAYS = [[], ["--ondol-isolate=item"], ["--ondol-start=spawn"]]

TABLE = """
    import os, pytest
    ROWS = []
    @pytest.fixture
    def row(request): ROWS.append(request.node.name)
    def pytest_sessionfinish(session, exitstatus):
        with open(os.environ["LOG"], "a") as log:
            for name in ROWS: log.write(f"{name} {int(exitstatus)}\\n")
        if os.environ.get("RAISE"): raise RuntimeError("the table is lost")
"""


CLEANS = """
    import os
    import _pytest.pathlib
    real = _pytest.pathlib.cleanup_numbered_dir
    def clean(*given):
        with open(os.environ["LOG"], "a") as log: log.write("cleans\\n")
        real(*given)
    _pytest.pathlib.cleanup_numbered_dir = clean
"""


@pytest.fixture(scope="module", params=WAYS)
def finished(new_suite: Callable[[], Suite], request: pytest.FixtureRequest) -> Result:
    """A run of each way, with both conftests."""
    test = "def test_{}(row, tmp_path): pass\n"
    suite = new_suite().write(conftest="from cleans import *\nfrom table import *\n", cleans=CLEANS, table=TABLE)
    suite.write(test_a=test.format(1) + test.format(2), test_b=test.format(3))
    ours = suite.pytest(*ONCE, *request.param, devices="cpu:2")
    assert "3 passed" in ours.summary, ours.output
    return ours


def test_temporary_directories_of_earlier_runs_are_cleared_away_once(finished: Result) -> None:
    """pytest plans it when it makes its own; every worker has inherited that plan, and looked through all of them."""
    assert finished.log.count("cleans") == 1


def test_a_conftest_writes_its_table_when_the_session_finishes(finished: Result) -> None:
    assert sorted(line for line in finished.log if line != "cleans") == ["test_1 0", "test_2 0", "test_3 0"]


def test_the_hook_of_a_worker_is_told_whether_its_items_failed(suite) -> None:
    suite.write(conftest=TABLE, test_a="def test_1(row): pass\ndef test_2(row): assert 0\n")
    assert suite.pytest(*ONCE).log == ["test_1 1", "test_2 1"]


def test_a_hook_that_fails_in_a_worker_is_an_error(suite) -> None:
    """Nobody else would say that what the worker had gathered is lost."""
    suite.variables["RAISE"] = "1"
    suite.write(conftest=TABLE, test_a="def test_1(row): pass\n")
    ours = suite.pytest(*ONCE)
    assert ours.verdicts == {"test_1": "error"}
    assert "the table is lost" in ours.output
    assert ours.status == 1


@pytest.mark.plugins("html", "html_fixtures", "metadata", "pytest_reportlog")
def test_reports_are_finished_by_the_controller_alone(suite) -> None:
    """A worker that finishes its copy of a reporter writes half a report over the whole one."""
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    suite.write(test_a="def test_1(): pass\ndef test_2(): assert 0\n", test_b="def test_3(): assert 0\n")
    files = ["--junitxml=out.xml", "--report-log=out.jsonl", "--html=out.html", "--self-contained-html"]
    ours = suite.pytest(*ONCE, *files, devices="cpu:2")
    assert "2 failed, 1 passed" in ours.summary
    assert 'tests="3"' in (suite.path / "out.xml").read_text()
    records = [json.loads(line) for line in (suite.path / "out.jsonl").read_text().splitlines()]
    assert [r["$report_type"] for r in records].count("SessionFinish") == 1
    assert len(suite.pytest(*ONCE, "--lf").selected) == 2


# ---------------------------------------------------------------------- debuggers

DEBUGS = """
    import pdb, pytest, sys
    def test_breakpoint(): breakpoint()
    def test_pdb(): pdb.set_trace()
    def test_pytest(): pytest.set_trace()
    def test_swallows():
        try: breakpoint()
        except Exception: pass
    def test_fine(): pass
"""


@pytest.mark.parametrize("flags", WAYS)
def test_a_breakpoint_says_what_to_type_instead_of_hanging(suite, flags) -> None:
    suite.write(test_d=DEBUGS)
    ours = on_a_terminal(suite, *ONCE, "--ondol-timeout=60", *flags)
    assert "4 failed, 1 passed" in ours, ours
    assert "pytest -p no:ondol test_d.py::test_breakpoint" in ours


@pytest.mark.parametrize("flags", [["-s"], ["-s", "--ondol-start=spawn"]])
def test_reading_from_the_terminal_ends_instead_of_hanging(suite, flags) -> None:
    """A process that is not in the terminal's foreground is stopped when it reads."""
    suite.write(test_d="def test_input(): input()\n")
    ours = on_a_terminal(suite, *ONCE, "--ondol-timeout=60", *flags)
    assert "EOFError" in ours, ours


@pytest.mark.parametrize("flag", ["--pdb", "--trace"])
def test_a_debugger_that_was_asked_for_is_refused_with_what_to_type(suite, flag) -> None:
    suite.write(test_d="def test_1(): assert 0\n")
    ours = suite.ondol(flag, "test_d.py")
    assert ours.status == 4
    assert re.search(rf"{flag} needs .* type: pytest -p no:ondol -p recorder {flag} test_d.py", ours.output)


def on_a_terminal(suite, *flags: str) -> str:
    """What a person sees, whose terminal it is: a process of another group that reads from it is stopped."""
    command = [sys.executable, "-m", "pytest", "--ondol-devices=cpu:1", "--ondol-native-stacks=0", "--color=no", *flags]
    process = suite.start(["script", "-qec", " ".join(command), "/dev/null"])
    output, _ = process.communicate(timeout=suite.patience)
    suite.end()
    return output


# ---------------------------------------------------------------------- plugins that keep their results in the process

MEASURES = """
    import pytest
    @pytest.mark.parametrize("n", [1, 2])
    def test_m(benchmark, n):
        benchmark.extra_info["n"] = n
        benchmark.pedantic(sum, args=([n],), rounds=5)
"""
#: Else it asks programs about the processor and the repository, which takes longer than the run.
KNOWS_ITS_MACHINE = """
    def pytest_benchmark_generate_machine_info(): return {"node": "here", "machine": "", "cpu": {}}
    def pytest_benchmark_generate_commit_info(): return {"id": "unknown"}
"""


@pytest.mark.plugins("benchmark")
@pytest.mark.parametrize("flags", WAYS)
def test_what_pytest_benchmark_measured_is_shown_and_saved(suite, flags) -> None:
    """It was neither, and the run was green."""
    suite.variables["PYTHONPATH"] = f"{suite.path}:{ROOT / '.build' / 'plugin-benchmark'}"
    suite.write(test_b=MEASURES, conftest=KNOWS_ITS_MACHINE)
    ours = suite.pytest(*ONCE, *flags, "--benchmark-json=out.json", devices="cpu:2")
    assert "benchmark: 2 tests" in ours.output, ours.output
    saved = json.loads((suite.path / "out.json").read_text())["benchmarks"]
    assert sorted((one["name"], one["extra_info"]["n"], one["stats"]["rounds"]) for one in saved) == [
        ("test_m[1]", 1, 5),
        ("test_m[2]", 2, 5),
    ]


@pytest.mark.plugins("dependency")
@pytest.mark.parametrize("where", [["cpu:1"], ["cpu:2", "--dist=loadfile"]])
def test_pytest_dependency_knows_what_ran_in_the_same_file(suite, where) -> None:
    """It keeps in the process which tests have passed."""
    suite.variables["PYTHONPATH"] = f"{suite.path}:{ROOT / '.build' / 'plugin-dependency'}"
    body = """
        import pytest
        @pytest.mark.dependency()
        def test_a(): assert FAILS is False
        @pytest.mark.dependency(depends=["test_a"])
        def test_b(): pass
        @pytest.mark.dependency(depends=["test_b"])
        def test_c(): pass
    """
    suite.write(test_x="FAILS = False\n" + textwrap.dedent(body), test_y="FAILS = True\n" + textwrap.dedent(body))
    plain = suite.plain("-p", "no:xdist")
    ours = suite.pytest(*ONCE, *where[1:], devices=where[0])
    assert plain.summary == "1 failed, 3 passed, 2 skipped"
    assert ours.outcomes == plain.outcomes, ours.output


HANDS_OVER = """
    import os
    ROWS, GATHERED = [], {}
    def pytest_runtest_teardown(item): ROWS.append(item.name)
    def pytest_sessionfinish(session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["rows"] = {"names": ROWS, "kind": (1, b"x")}
            if os.environ.get("ODD"): session.config.workeroutput["odd"] = object()
        else:
            with open(os.environ["LOG"], "a") as log: log.write(f"{sorted(GATHERED.items())}\\n")
    def pytest_testnodedown(node, error):
        assert node.workeroutput["rows"]["kind"] == (1, b"x")
        GATHERED[node.gateway.id] = sorted(node.workeroutput["rows"]["names"])
"""


@pytest.mark.plugins("xdist")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_what_a_conftest_hands_over_as_xdist_has_it_comes_home(suite, start) -> None:
    suite.write(conftest=HANDS_OVER, test_a="def test_1(): pass\ndef test_2(): pass\n")
    ours = suite.pytest(*ONCE, f"--ondol-start={start}")
    assert ours.log == ["[('gw0', ['test_1', 'test_2'])]"], ours.output


@pytest.mark.plugins("xdist")
def test_what_cannot_be_handed_over_is_said(suite) -> None:
    suite.variables["ODD"] = "1"
    suite.write(conftest=HANDS_OVER, test_a="def test_1(): pass\n")
    ours = suite.pytest(*ONCE)
    assert "config.workeroutput can carry plain values only" in ours.output
    assert ours.status == 1
