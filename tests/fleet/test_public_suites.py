"""Parts of public suites that saw a worker where plain pytest has none: id by id what plain pytest says.

SciPy and scikit-learn could not make sockets below TMPDIR; structlog's streams were closed, and its stack was too deep;
anyio and werkzeug saw frozen garbage. What is left out needs more time than a busy machine has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.public_suite import Outcome, outcomes

from people import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

#: That one worker is plain pytest, `test_parity` shows; a worker of two is forked just so.
WAYS = {"c2": ["--devices=cpu:2"], "iso": ["--devices=cpu:2", "--isolate=item"]}

SOCKETS = "apwrapper or pool or Pool or without_subtasks or during_fit"
#: Where the tests are (a source distribution, or nowhere: a package that brings them), and which.
CASES = {
    "structlog": (
        "structlog-26.1.0",
        ["tests/test_output.py", "tests/test_tracebacks.py", "-k", "PrintLogger or recursive or cycle or nested"],
    ),
    "anyio": (
        "anyio-4.16.0",
        [f"tests/test_pytest_plugin.py::test_{name}" for name in ("plugin", "auto_mode", "hypothesis_module_mark")],
    ),
    "werkzeug": (
        "werkzeug-3.1.9",
        ["-p", "holds_a_rule", "tests/test_routing.py", "-k", "memory_leak or rule or slash or host"],
    ),
    # Together: scikit-learn imports SciPy anyway.
    "scipy and sklearn": (
        "",
        ["--pyargs", "scipy._lib.tests.test__util", "sklearn.callback.tests.test_progressbar", "-k", SOCKETS],
    ),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path: Path):
    """Runs the case with these words before pytest's arguments; returns outcomes by id."""
    suites, tools = ROOT / ".build" / "suites", ROOT / ".build" / "tools"
    for one in (suites, tools):
        assert one.is_dir(), f"make test installs it; for pytest alone: make .build/{one.name}"
    (tmp_path / "holds_a_rule.py").write_text("from werkzeug.routing import Rule\nHELD = Rule('/')\n")
    folder, tests = CASES[request.param]
    [packages] = (tools / "lib").glob("python3*/site-packages")
    path = [tmp_path, suites, packages]
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ONDOL_STORE": str(tmp_path / "store"),
        "TMPDIR": "/tmp",
        # Of what is installed here each suite gets what it names, and not a second of imports for all the others.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_TIMEOUT": "400",  # anyio gives its tests 20 s, which a busy machine may need
    }

    def run(*words: str) -> Outcome:
        junit = tmp_path / "out.xml"
        junit.unlink(missing_ok=True)
        plugins = ["-p", "no:cacheprovider", "-p", "asyncio" if "structlog" in folder else "no:asyncio"]
        done = subprocess.run(
            [sys.executable, "-m", *words, "-q", *plugins, f"--junitxml={junit}", *tests],
            cwd=suites / "sources" / folder if folder else tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert junit.exists(), done.stdout + done.stderr
        return outcomes(junit)

    return run


def test_outcomes_are_those_of_plain_pytest(case) -> None:
    plain = case("pytest")
    assert len(plain) > 2
    for name, flags in WAYS.items():
        ours = case("ondol", "test", "--judge=off", "--retries=0", *flags)
        different = {key: (plain.get(key), ours.get(key)) for key in plain.keys() | ours.keys()}
        assert not {key: pair for key, pair in different.items() if pair[0] != pair[1]}, name
