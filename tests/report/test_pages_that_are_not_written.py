"""`--html` and `--perfetto` of `ondol test`: a file that cannot be made costs a line, never the run or its status."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from ondol.fleet import journal
from ondol.fleet.record import RunRecord
from ondol.report import run_page
from suites import Suite

ROOT = Path(__file__).parents[2]
HIDE_PYTEST_HTML = "import importlib.util as u, sys; f = u.find_spec; u.find_spec = lambda n, *a: None if n == 'pytest_html' else f(n, *a)\n"


@pytest.mark.plugins
def test_html_is_refused_where_it_could_mean_pytest_htmls(suite: Suite) -> None:
    suite.write(test_a="def test_good(): pass\n")
    result = suite.ondol("--html=page.html")
    assert result.status == 2
    assert "--html is an option of Ondol and of pytest-html, which is installed; nothing was run" in result.output
    assert "--ondol-html FILE" in result.output
    assert not (suite.path / "page.html").exists()


@pytest.mark.plugins
def test_html_is_ondols_where_there_is_no_pytest_html(suite: Suite) -> None:
    suite.write(test_a="def test_good(): pass\n", sitecustomize=HIDE_PYTEST_HTML)
    result = suite.ondol("--html", "page.html", "-p", "no:html")
    assert result.status == 0, result.output
    assert (suite.path / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.plugins
def test_pytest_html_still_gets_its_own(suite: Suite) -> None:
    suite.write(test_a="def test_good(): pass\n")
    suite.variables["PYTEST_ADDOPTS"] = "--html=theirs.html"
    result = suite.ondol("--ondol-html=ours.html")
    assert result.status == 0, result.output
    assert "pytest-html" in (suite.path / "theirs.html").read_text()
    assert "Ondol test report" in (suite.path / "ours.html").read_text()


@pytest.mark.warm_pytest
def test_a_page_that_cannot_be_written_does_not_fail_the_run(suite: Suite) -> None:
    suite.write(test_a="def test_good(): pass\n")
    result = suite.ondol("--ondol-html=no/such/page.html", "--perfetto=trace.json")
    assert result.status == 0, result.output
    assert f"cannot write {suite.path}/no/such/page.html" in result.output
    assert "--html FILE" in result.output, "how to make it again"
    assert (suite.path / "trace.json").exists()


def test_a_run_that_was_killed_still_has_its_page(suite: Suite) -> None:
    """The front writes it, so also when pytest itself is gone."""
    suite.write(
        test_a="""
        import os, signal
        def test_first(): pass
        def test_kills_the_controller():
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                try:
                    command, variables = open(f"/proc/{pid}/cmdline").read(), open(f"/proc/{pid}/environ").read()
                except OSError:
                    continue
                if f"ONDOL_TEST_TAG={os.environ['ONDOL_TEST_TAG']}" in variables and "--ondol-journal" in command and pid not in (os.getpid(), os.getppid()):
                    os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    result = suite.ondol("--ondol-html=page.html", devices="cpu:1")
    assert "pytest itself died" in result.output, result.output
    assert (suite.path / "page.html").exists()


@pytest.mark.warm_pytest
def test_ondol_as_one_file_carries_the_page(tmp_path: Path, suite: Suite) -> None:
    made = tmp_path / "ondol.pyz"
    build = [sys.executable, str(ROOT / "packaging" / "one_file.py"), "--output", str(made), "--without-libzstd"]
    subprocess.run(build, check=True, capture_output=True)
    names = zipfile.ZipFile(made).namelist()
    for kind in ("html", "css", "js"):
        assert f"ondol/report/html/page.{kind}" in names
    suite.write(test_a="def test_good(): pass\n")
    journal = suite.ondol().journal
    page = tmp_path / "page.html"
    command = [sys.executable, "-I", str(made), "report", str(journal), "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!doctype html>")


def test_the_command_for_one_test_repeats_what_was_typed_and_nothing_else() -> None:
    typed = [
        "-p",
        "no:ondol",
        "--ondol-devices=",
        "--ondol-engine=ssh:a b",
        "--ondol-journal=/x",
        "tests",
        "--ondol-timeout=5",
    ]
    page = run_page.render(RunRecord(run=journal.Run(arguments=typed)))
    packed = re.search('id="data">([^<]*)<', page)
    assert packed is not None
    told = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    assert told["again"] == "ondol test '--engine=ssh:a b' --timeout=5"
