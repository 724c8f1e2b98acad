"""Suites run in forks of a warm process (`warm_pytest`): a run that differs from a fresh one would prove something else."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from suites import Suite

LOOK = """
    import json, os, sys, tempfile, threading, warnings
    def signals():
        "Without 32 and 33, the C library's own: make's children ignore them, until one of them starts a thread."
        lines = [line.split() for line in open("/proc/self/status") if line.startswith(("Sig", "Shd"))]
        return {name: int(mask, 16) & ~(3 << 31) for name, mask in lines if name != "SigQ:"}
    def pytest_sessionfinish(session):
        print("said")
        found = {
            "path": sys.path, "arguments": sys.argv[1:], "main": sys.modules["__main__"].__name__, "cwd": os.getcwd(),
            "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
            "descriptors": sorted(map(int, set(os.listdir("/proc/self/fd")))), "threads": threading.active_count(),
            "flags": repr(sys.flags), "frozen": sys.dont_write_bytecode, "signals": signals(), "tmp": tempfile.gettempdir(),
            "tagged": os.environ["ONDOL_TEST_TAG"] in open("/proc/self/environ").read(),
            "plugins": sorted(name for name, _ in session.config.pluginmanager.list_name_plugin() if not name.isdigit()),
        }
        with open(os.environ["LOG"], "w") as file: json.dump(found, file)
"""


@pytest.mark.parametrize("how", ["plain", "ondol"])
def test_it_sees_what_a_fresh_one_sees(tmp_path, how) -> None:
    """The pytest that `ondol test` starts as well; its journal and its room have other names in every run."""
    suite = Suite(tmp_path)
    suite.variables["MINE"] = "yes"
    suite.write(conftest=LOOK, test_a="def test_good(): pass\ndef test_bad(): assert 0\n")
    seen = {}
    for warm in (False, True):
        suite.warm = warm
        result = getattr(suite, how)("-s", "-q")
        assert (result.status, "said" in result.output, result.summary) == (1, True, "1 failed, 1 passed")
        assert "PytestAssertRewriteWarning" not in result.output
        seen[warm] = json.loads(re.sub(r"(journal|room-\d+)-\w+", r"\1", result.log[0]))
    assert seen[True] == seen[False]
    assert seen[True]["tagged"]


def test_its_death_by_a_signal_is_told(tmp_path) -> None:
    suite = Suite(tmp_path)
    suite.warm = True
    suite.write(test_a="import os\ndef test_dies(): os.kill(os.getpid(), 9)\n")
    assert suite.plain().status == -9


def test_one_that_hangs_is_ended_when_patience_is_over(tmp_path) -> None:
    suite = Suite(tmp_path)
    suite.warm, suite.patience = True, 1.0
    suite.write(test_a="import signal\ndef test_hangs(): signal.pause()\n")
    with pytest.raises(subprocess.TimeoutExpired):
        suite.plain()
    assert suite.all_gone()
    suite.patience = 240.0
    suite.write(test_a="def test_passes(): pass\n")
    assert suite.plain().status == 0, "the next one is served"


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "PYTHONHASHSEED"])
def test_what_is_read_before_any_import_has_a_fresh_one(tmp_path, name) -> None:
    ours = os.environ.get(name)
    suite = Suite(tmp_path)
    suite.warm = True
    suite.variables[name] = "1"
    suite.write(test_a=f"def test_it(): assert b'{name}=1' in open('/proc/self/environ', 'rb').read()\n")
    assert suite.plain().status == 0
    assert os.environ.get(name) == ours


def test_what_customises_every_python_is_run_wherever_it_lies(tmp_path) -> None:
    suite = Suite(tmp_path)
    suite.warm = True
    suite.write(elsewhere__sitecustomize="import os\nos.environ['CUSTOMISED'] = 'yes'\n")
    suite.variables["PYTHONPATH"] = os.pathsep.join([str(suite.path), str(suite.path / "elsewhere")])
    suite.write(test_a="import os\ndef test_it(): assert os.environ['CUSTOMISED'] == 'yes'\n")
    assert suite.plain().status == 0
