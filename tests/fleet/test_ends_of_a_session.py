"""What a suite's conftest does when the session ends: it sets the exit status, refuses the run, looks up what was noted
in a worker, or takes away what it made at the start.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.warm_pytest

ONCE = ["--ondol-judge=off", "--ondol-retries=0"]
TWO = "def test_1(): assert 0\ndef test_2(): pass\n"


@pytest.mark.parametrize(("status", "tests"), [(9, "def test_1(): pass\n"), (0, TWO)])
def test_the_status_that_a_conftest_sets_is_that_of_the_run(suite, status, tests) -> None:
    """TileOPs: a kernel that was skipped on its own hardware is no success. quack: nor is a test without a report."""
    suite.write(conftest=f"def pytest_sessionfinish(session): session.exitstatus = {status}\n", test_a=tests)
    assert suite.plain().status == status
    assert suite.pytest(*ONCE).status == status
    assert suite.ondol("--judge=off").status == status


def test_a_conftest_that_refuses_the_run_is_heard(suite) -> None:
    """It was told as `pytest itself died`, with another status."""
    suite.write(
        conftest="""
            import pytest
            def pytest_sessionfinish(session):
                if not hasattr(session.config, "workerinput"): raise pytest.UsageError("a kernel was skipped")
        """,
        test_a="import pytest\n@pytest.mark.skip\ndef test_1(): pass\n",
    )
    plain, ours = suite.plain(), suite.ondol("--judge=off")
    assert (plain.status, ours.status) == (4, 4), ours.output
    assert "ERROR: a kernel was skipped" in ours.output
    assert "died" not in ours.output
    assert ours.verdicts == {"test_1": "skipped"}
    assert ours.record.complete


LOOKS_UP = """
    NOTED = {{}}
    def pytest_runtest_call(item): NOTED["last"] = item.name
    def {}: print(NOTED["last"])
"""


@pytest.mark.parametrize("hook", ["pytest_sessionfinish(session)", "pytest_terminal_summary(terminalreporter, config)"])
def test_a_table_that_is_not_there_costs_no_other_one(suite, hook) -> None:
    """In plain pytest the hook finds what it noted. With pytest-xdist it raises, and nothing is shown of the run."""
    suite.write(conftest=LOOKS_UP.format(hook), test_a=TWO.replace("assert 0", "pass"))
    assert suite.plain().status == 0
    ours = suite.pytest(*ONCE, "--junitxml=out.xml")
    name = hook.partition("(")[0]
    assert "2 passed" in ours.summary
    assert f"conftest.py:4: {name} raised KeyError: 'last'" in ours.output
    assert "Traceback" not in ours.output
    assert 'tests="2"' in (suite.path / "out.xml").read_text()
    assert ours.status == 1, "somebody counted on that table"


TAKES_AWAY = """
    import os, pytest, shutil, tempfile
    def pytest_sessionstart(session):
        pytest.shared = tempfile.mkdtemp(dir=os.environ["SHARED"])
    def pytest_sessionfinish(session):
        shutil.rmtree(pytest.shared)
        with open(os.environ["LOG"], "a") as log: log.write("removed\\n")
"""
USES = """
    import os, pytest
    @pytest.mark.parametrize("n", range(3))
    def test_a(n): assert os.path.isdir(pytest.shared)
"""


@pytest.mark.parametrize("flags", [[], ["--ondol-isolate=item"], ["--ondol-recycle-after=1"], ["--ondol-start=spawn"]])
def test_what_began_in_the_controller_ends_there(suite, flags) -> None:
    """The first worker that left removed the directory of all others (iree-test-suites)."""
    suite.variables["SHARED"] = str(suite.path)
    suite.write(conftest=TAKES_AWAY, test_a=USES)
    ours = suite.pytest(*ONCE, *flags)
    assert "3 passed" in ours.summary, ours.output
    assert set(ours.log) == {"removed"}
    assert not [one for one in suite.path.iterdir() if one.name.startswith("tmp")]


def test_a_conftest_that_knows_workers_finishes_in_each_of_them(suite) -> None:
    suite.write(
        conftest="""
            import os
            def pytest_sessionstart(session): session.rows = []
            def pytest_runtest_teardown(item): item.session.rows.append(item.name)
            def pytest_sessionfinish(session):
                if hasattr(session.config, "workerinput"):
                    with open(os.environ["LOG"], "a") as log: log.write(f"{session.rows}\\n")
        """,
        test_a="def test_1(): pass\ndef test_2(): pass\n",
    )
    assert suite.pytest(*ONCE).log == ["['test_1', 'test_2']"]


def test_a_spawned_worker_is_unconfigured_as_it_was_configured(suite) -> None:
    """cudf: each worker writes what it counted, and whoever started a server there stops it."""
    suite.write(
        conftest="""
            import os
            def pytest_unconfigure(config):
                who = getattr(config, "workerinput", {}).get("workerid", "controller")
                with open(os.environ["LOG"], "a") as log: log.write(f"{who}\\n")
        """,
        test_a="def test_1(): pass\n",
    )
    assert suite.pytest(*ONCE, "--ondol-start=spawn").log == ["gw0", "controller"]
    assert suite.pytest(*ONCE, "--ondol-start=fork").log == ["controller"]


def test_a_session_fixture_knows_at_its_end_whether_anything_failed(suite) -> None:
    """It keeps logs and directories then. Only the last item counted."""
    suite.write(
        conftest="""
            import os, pytest
            @pytest.fixture(scope="session", autouse=True)
            def keeps(request):
                yield
                with open(os.environ["LOG"], "a") as log: log.write(f"{request.session.testsfailed}\\n")
        """,
        test_a=TWO,
    )
    assert suite.plain().log == suite.pytest(*ONCE).log == ["1"]
