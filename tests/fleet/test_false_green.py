"""A run that says nothing about its items ends with status 0: whatever the status is, such a run is not green."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.warm_pytest

ENDS = {
    "exit_0": "import os; os._exit(0)",
    "exit_3": "import os; os._exit(3)",
    "exec": "import os; os.execvp('true', ['true'])",
}


@pytest.mark.fault
@pytest.mark.parametrize("how", ENDS)
def test_a_file_that_ends_the_collecting_process_is_named_and_the_run_is_red(suite, how: str) -> None:
    suite.write(test_a="def test_1(): pass\n", test_ends=ENDS[how] + "\n", test_z="def test_2(): pass\n")
    result = suite.ondol("--continue-on-collection-errors")
    assert result.status == 1
    assert [fatal.file for fatal in result.record.fatal] == ["test_ends.py"]
    assert f"ended itself with status {3 if how == 'exit_3' else 0}" in result.record.fatal[0].why
    assert result.verdicts == {"test_1": "passed", "test_2": "passed"}
    assert "test_ends.py" in result.output


@pytest.mark.fault
def test_a_conftest_that_ends_the_process_is_red_too(suite) -> None:
    suite.write(conftest="import os\nos._exit(0)\n", test_a="def test_1(): pass\n")
    result = suite.ondol()
    assert result.status == 3
    assert "ended itself with status 0" in result.output


@pytest.mark.fault
def test_a_controller_that_leaves_before_it_has_closed_its_books_is_red(suite) -> None:
    conftest = "import os\ndef pytest_sessionfinish(): os._exit(0)\n"
    suite.write(conftest=conftest, test_a="def test_1(): pass\n")
    result = suite.ondol()
    assert (result.status, result.verdicts) == (121, {"test_1": "passed"})
    assert "pytest itself died: the process ended itself with status 0" in result.output


@pytest.mark.fault
def test_the_journal_of_an_earlier_run_vouches_for_nothing(suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    journal = f"--journal={suite.path / 'one.jsonl'}"
    assert suite.ondol(journal).status == 0
    suite.write(test_a="import os\nos._exit(0)\n")
    result = suite.ondol(journal)
    assert result.status not in {0, 3}
    assert "test_a.py" in result.output


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["--markers"], ["--fixtures"], ["--collect-only", "-q"]])
def test_what_is_only_asked_is_answered_with_0(suite, words: list[str]) -> None:
    suite.write(test_a="def test_1(): pass\n")
    assert suite.ondol(*words).status == 0
