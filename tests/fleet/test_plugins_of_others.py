"""pytest's own cache and listing options, and reporters written by others: they see what plain pytest shows them."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

SOME_FAIL = {
    "test_a": "def test_1(): pass\ndef test_2(): assert 0\ndef test_3(): pass\n",
    "test_b": "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_n(n): assert n != 2\n",
    "test_c": "import pytest\n@pytest.fixture\ndef bad(): raise RuntimeError('x')\ndef test_e(bad): pass\ndef test_f(): pass\n",
}


@pytest.fixture
def cached(suite):
    """A suite with pytest's cache, one for each way of running it."""
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    suite.write(**SOME_FAIL)
    return suite


@pytest.fixture(scope="module")
def caches(new_suite: Callable[[], Suite]) -> Path:
    """What plain pytest and we keep of a first run: folders `plain` and `ours`."""
    suite = new_suite().write(**SOME_FAIL)
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    the_same(*(run(suite, suite.path) for run in (plain_run, our_run)))
    return suite.path


def plain_run(suite: Suite, caches: Path, *flags: str) -> Result:
    return suite.plain("-o", f"cache_dir={caches / 'plain'}", *flags)


def our_run(suite: Suite, caches: Path, *flags: str) -> Result:
    return suite.pytest("-o", f"cache_dir={caches / 'ours'}", "--ondol-judge=off", *flags)


def the_same(plain: Result, ours: Result) -> None:
    assert ours.selected == plain.selected
    assert ours.outcomes == plain.outcomes
    assert ours.status == plain.status
    assert ours.summary == plain.summary


@pytest.fixture
def copied(caches: Path, tmp_path: Path) -> Path:
    for name in ("plain", "ours"):
        shutil.copytree(caches / name, tmp_path / "copied" / name)
    return tmp_path / "copied"


@pytest.mark.parametrize("flags", [["--lf"], ["--ff"], ["--lf", "-x"], ["--sw"]])
def test_what_failed_last_is_remembered_as_by_plain_pytest(cached, copied, flags) -> None:
    """A runner whose reports do not reach the cache makes `--lf` select everything, or nothing."""
    the_same(*(run(cached, copied, *flags) for run in (plain_run, our_run)))


def test_what_was_mended_is_forgotten_as_by_plain_pytest(cached, copied) -> None:
    """An item that passes under `--lf` must leave the list of the failed."""
    cached.write(test_a=SOME_FAIL["test_a"].replace("assert 0", "assert 1"))
    for run in (plain_run, our_run):
        assert "1 passed" in run(cached, copied, "--lf").summary
        assert run(cached, copied, "--lf").selected == ["test_b.py::test_n[2]", "test_c.py::test_e"]


def test_a_crash_is_remembered_as_a_failure(cached) -> None:
    """What crashed has only the reports that the controller made for it; `--lf` must find them."""
    cached.write(test_d="import os\ndef test_fine(): pass\ndef test_crash(): os.abort()\n")
    flags = ["--ondol-retries=0", "--ondol-judge=off"]
    cached.pytest(*flags, devices="cpu:2")
    again = cached.pytest(*flags, "--lf")
    assert "test_d.py::test_crash" in again.selected
    assert "test_d.py::test_fine" not in again.selected


@pytest.mark.parametrize("flags", [["--durations=3"], ["--durations=0", "-vv"]])
def test_the_slowest_items_are_listed(cached, flags) -> None:
    """Durations are measured in the worker and must survive the way to the controller."""
    cached.write(test_d="import select\ndef test_slow(): select.select([], [], [], 0.3)\n")
    ours = cached.pytest(*flags, devices="cpu:2")
    listed = re.findall(r"^([\d.]+)s (call|setup|teardown) +(\S+)", ours.output, re.M)
    assert listed, ours.output
    assert listed[0][1:] == ("call", "test_d.py::test_slow")
    assert 0.3 <= float(listed[0][0]) < 30
    if "-vv" in flags:
        assert {name for _, _, name in listed} == set(ours.selected)


@pytest.mark.parametrize("flags", [["-q"], ["-v", "-rA"], ["--co"], ["--co", "-q", "-k", "1 or n"]])
def test_what_is_printed_names_the_same_items(cached, flags) -> None:
    """Line by line, after times, percentages and our own lines are taken out."""
    plain = cached.plain("-o", "cache_dir=plain", *flags)
    ours = cached.pytest("-o", "cache_dir=ours", "--ondol-judge=off", *flags)
    assert ours.status == plain.status
    assert listing(ours.output) == listing(plain.output)


def listing(output: str) -> list[str]:
    """Lines that name an item or a node of the collected tree, with the outcome beside it."""
    lines = [re.sub(r"\s+\[ *\d+%\]", "", line) for line in output.splitlines()]
    return [line for line in lines if re.match(r"(\s*<|test_\w+\.py|(PASSED|FAILED|ERROR) )", line)]


WITH_A_CRASH = """
    import os, pytest
    def test_pass(): print("printed by a passing test")
    def test_fail(): assert 0, "a reason to fail"
    def test_skip(): pytest.skip("not today")
    @pytest.mark.xfail
    def test_xfail(): assert 0
    def test_error(no_such_fixture): pass
    def test_crash():
        print("printed before the crash", flush=True)
        os.abort()
"""
NAMES = ["pass", "fail", "skip", "xfail", "error", "crash"]


@pytest.mark.plugins("html", "html_fixtures", "metadata")
def test_the_html_report_has_every_item_and_the_crash(suite) -> None:
    pytest.importorskip("pytest_html")
    suite.write(test_h=WITH_A_CRASH)
    suite.pytest("--html=out.html", "--self-contained-html", "--ondol-retries=0", devices="cpu:2")
    text = (suite.path / "out.html").read_text()
    blob = re.search(r'data-jsonblob="([^"]*)"', text)
    assert blob is not None
    tests = json.loads(html.unescape(blob[1]))["tests"]
    assert {name.split("::")[1] for name in tests if name.count("::") == 1} == {f"test_{name}" for name in NAMES}
    crash = json.dumps(tests["test_h.py::test_crash"])
    assert "SIGABRT" in crash
    assert "printed before the crash" in crash
    assert tests["test_h.py::test_crash"][-1]["result"] in {"Failed", "Error"}


@pytest.mark.plugins("pytest_reportlog")
def test_the_report_log_has_every_item_and_the_crash(suite) -> None:
    pytest.importorskip("pytest_reportlog")
    suite.write(test_h=WITH_A_CRASH, test_w="import warnings\ndef test_w(): warnings.warn('seen')\n")
    ours = suite.pytest("--report-log=out.jsonl", "--ondol-retries=0", devices="cpu:2")
    lines = [json.loads(line) for line in (suite.path / "out.jsonl").read_text().splitlines()]
    outcomes: dict[str, set[str]] = {}
    for line in lines:
        if line.get("$report_type") == "TestReport":
            outcomes.setdefault(line["nodeid"].split("::")[1], set()).add(line["outcome"])
    assert set(outcomes) == {f"test_{name}" for name in [*NAMES, "w"]}
    assert "failed" in outcomes["test_crash"]
    assert any("SIGABRT" in json.dumps(line) for line in lines)
    assert any(line.get("$report_type") == "WarningMessage" and "seen" in json.dumps(line) for line in lines)
    assert lines[-1] == {"exitstatus": ours.status, "$report_type": "SessionFinish"}


@pytest.mark.parametrize("how", ["-p", "pytest_plugins"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_device_that_a_plugin_of_the_suite_brings_is_theirs(suite, how, start) -> None:
    """Suites for accelerators keep their `device` in a module of fixtures; ours, registered later, took its place."""
    suite.write(
        fixtures_of_theirs="""
        import pytest
        @pytest.fixture(params=["cpu", "meta"], name="device")
        def _device(request): return request.param, "theirs"
        """,
        test_d='def test_d(device): assert device[1] == "theirs"\n',
    )
    if how == "pytest_plugins":
        suite.write(conftest='pytest_plugins = ["fixtures_of_theirs"]\n')
    flags = ["-p", "fixtures_of_theirs"] if how == "-p" else []
    ours = suite.pytest(f"--ondol-start={start}", *flags)
    assert ours.verdicts == {"test_d[cpu]": "passed", "test_d[meta]": "passed"}
