"""Workers that had to be new interpreters: they must not undo, repeat or miss what the controller's pytest has done."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.warm_pytest

SPAWN = ["--ondol-start=spawn", "--ondol-judge=off", "--ondol-retries=0"]
#: As many starting workers as items.
EACH = [*SPAWN, "--ondol-isolate=item"]


def test_basetemp_keeps_what_earlier_workers_wrote(suite) -> None:
    """Each pytest deletes its --basetemp when it starts; the workers were given the controller's."""
    suite.write(
        test_b="import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_n(n, tmp_path): (tmp_path / 'kept').write_text('x')\n"
    )
    ours = suite.pytest(*EACH, "--basetemp=base")
    assert "3 passed" in ours.summary, ours.output
    assert len(list((suite.path / "base").rglob("kept"))) == 3


LOGS = """
    import logging, pytest
    logging.getLogger("mine").warning("collected %s", __name__)
    @pytest.mark.parametrize("n", range(2))
    def test_n(n): logging.getLogger("mine").warning("running %s %d", __name__, n)
"""


@pytest.mark.plugins("pytest_reportlog")
def test_files_that_reporters_write_are_written_once(suite) -> None:
    """A worker that opens them again cuts off what is there."""
    suite.write(test_a=LOGS, test_b=LOGS)
    files = ["--report-log=out.jsonl", "--log-file=out.log", "--log-file-level=INFO", "--junitxml=out.xml"]

    def written() -> tuple[list[str], list[str]]:
        records = [json.loads(line) for line in (suite.path / "out.jsonl").read_text().splitlines()]
        log = re.findall(r"(?:collected|running) .*", (suite.path / "out.log").read_text())
        return sorted(f"{r['$report_type']} {r.get('nodeid')} {r.get('when')}" for r in records), sorted(log)

    suite.plain(*files)
    plain = written()
    assert len(plain[1]) == 6
    for flags in (EACH, SPAWN, [*SPAWN, "--ondol-start=fork"]):
        ours = suite.pytest(*flags, *files, devices="cpu:2")
        assert "4 passed" in ours.summary, ours.output
        assert written() == plain, flags
        assert 'tests="4"' in (suite.path / "out.xml").read_text()


@pytest.mark.parametrize("named", ["package", "file", "both"])
def test_tests_outside_of_the_root_are_found(suite, tmp_path_factory, named) -> None:
    """Their ids are relative to what was named on the command line, and a file of ours may have the same id."""
    outside = tmp_path_factory.mktemp("outside")
    package = outside / "far_away"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tests" / "__init__.py").write_text("")
    (package / "tests" / "test_far.py").write_text("def test_1(): pass\ndef test_2(): assert 0\n")
    suite.write(tests__test_far="def test_1(): assert 0, 'the wrong file'\ndef test_2(): pass\n")
    suite.variables["PYTHONPATH"] = f"{suite.path}:{outside}"
    arguments = {
        "package": ["--pyargs", "far_away"],
        "file": [str(package / "tests" / "test_far.py")],
        "both": ["--pyargs", "far_away", "tests/test_far.py"],
    }[named]
    arguments += [f"--rootdir={suite.path}", "-c", "pytest.ini"]
    plain = suite.plain(*arguments)
    assert plain.seen
    for flags in (SPAWN, [*SPAWN, "--ondol-start=fork"]) if named == "both" else [SPAWN]:
        ours = suite.pytest(*flags, *arguments)
        assert ours.outcomes == plain.outcomes, ours.output


@pytest.mark.fault
def test_one_session_begins_and_stacks_are_in_the_report(suite) -> None:
    """Each worker printed a header into the dots, and the stack of its crash past the report."""
    suite.write(test_c="import os\ndef test_1(): pass\ndef test_crash(): os.abort()\ndef test_2(): pass\n")
    ours = suite.pytest(*EACH, devices="cpu:2")
    assert ours.verdicts == {"test_1": "passed", "test_crash": "crashed", "test_2": "passed"}
    assert ours.output.count("test session starts") == 1
    before, _, report = ours.output.partition("= FAILURES =")
    assert "Fatal Python error" not in before
    assert "in test_crash" in report


def test_the_plugin_whose_thread_forbids_a_fork_is_named(suite) -> None:
    suite.write(
        some_plugin="import threading\nover = threading.Event()\ndef serve(): over.wait()\n"
        "def pytest_configure(): threading.Thread(target=serve, name='run_server', daemon=True).start()\n",
        test_t="def test_1(): pass\n",
    )
    ours = suite.pytest("-p", "some_plugin")
    assert "1 passed" in ours.summary
    assert "run_server, started at some_plugin.py:4" in ours.output
