"""`ondol test --timout 5` was refused after all conftests had been imported: half a minute on a real suite."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.warm_pytest

ONE = "def test_1(): open('ran', 'a').write('x')\n"
SLOW = "open('imported', 'a').write('x')\n"
OPTION = "def pytest_addoption(parser): parser.addoption({name}, default='none')\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--timout=5", "--timeout"), ("--devcies", "--devices"), ("--triton-autotne", "--triton-autotune")],
)
def test_what_nobody_can_know_is_refused_before_any_conftest_is_imported(suite, typed, meant) -> None:
    suite.write(test_a=ONE, conftest=SLOW)
    result = suite.ondol(typed)
    assert result.status == 4, result.output
    assert f"did you mean {meant}?" in result.output
    assert not (suite.path / "imported").exists()
    assert not (suite.path / "ran").exists()


def test_what_a_conftest_may_still_bring_is_named_first_and_left_to_pytest(suite) -> None:
    """This conftest can add options; only importing it tells that it adds another one."""
    suite.write(test_a=ONE, conftest=SLOW + OPTION.format(name="'--else'"))
    result = suite.ondol("--timout=5")
    assert result.status == 4, result.output
    assert result.output.index("did you mean --timeout?") < result.output.index("unrecognized arguments: --timout=5")
    assert (suite.path / "imported").exists()


def test_an_option_of_the_suites_own_is_no_slip(suite) -> None:
    suite.write(test_a=ONE, conftest=OPTION.format(name="'--device'"))
    result = suite.ondol("--device=x")
    assert (result.status, "did you mean" in result.output) == (0, False), result.output


def test_an_option_of_a_plugin_is_no_slip(suite) -> None:
    suite.write(test_a=ONE, conftest="", brought=OPTION.format(name="'--device'"))
    result = suite.ondol("-p", "brought", "--device=x")
    assert (result.status, "did you mean" in result.output) == (0, False), result.output


@pytest.mark.parametrize("name", ["'--dev' 'ice'", "'--device'"])
def test_an_option_that_a_conftest_brings_by_another_module_is_accepted(suite, name) -> None:
    """No text that is looked at holds the word."""
    suite.write(test_a=ONE, conftest="pytest_plugins = ['brought']\n", brought=OPTION.format(name=name))
    result = suite.ondol("--device=x")
    assert result.status == 0, result.output


def test_words_that_are_like_nothing_of_ours_are_pytests(suite) -> None:
    suite.write(test_a=ONE, conftest=SLOW)
    result = suite.ondol("--quux")
    assert result.status == 4, result.output
    assert "did you mean" not in result.output


@pytest.mark.parametrize("how", ["file", "both", "typed"])
def test_options_of_a_run_have_a_variable_and_a_key(suite, how) -> None:
    """The file says two workers, the variable three, the command line one."""
    suite.write(test_a=ONE)
    (suite.path / "ondol.toml").write_text("workers-per-device = 2\n")
    if how != "file":
        suite.variables = {"ONDOL_WORKERS_PER_DEVICE": "3"}
    expected = {"file": 2, "both": 3, "typed": 1}[how]
    (suite.path / "conftest.py").write_text(
        "def pytest_configure(config): print('WORKERS', config.getoption('ondol_workers_per_device'))\n"
    )
    result = suite.ondol("-s", *(["--workers-per-device=1"] if how == "typed" else []), devices="cpu:1")
    assert f"WORKERS {expected}\n" in result.output


def test_what_is_set_outside_beats_pytests_ini_file(suite) -> None:
    suite.write(test_a=ONE)
    (suite.path / "pytest.ini").write_text("[pytest]\nondol_grace = 7\nondol_timeout = 50\n")
    suite.variables = {"ONDOL_TIMEOUT": "1m"}
    (suite.path / "conftest.py").write_text(
        "def pytest_configure(config): print('SET', *(config.getoption('ondol_' + n) for n in ('grace', 'timeout')))\n"
    )
    assert "SET 7.0 60.0\n" in suite.ondol("-s").output
