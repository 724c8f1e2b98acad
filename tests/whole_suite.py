"""The whole suite with `ondol test`: this checkout's Ondol runs the tests that it has to pass.

    python tests/whole_suite.py [FOLDER OR FILE …] [OPTIONS OF ondol test AND OF pytest …]

Nothing gets a second chance: no retry, no second opinion. Green means: Ondol was shown a red suite and called it red,
`ondol test` ended with status 0, and every file that was asked for has a test in pytest's own JUnit report.
"""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import IO, NamedTuple

ROOT = Path(__file__).parent.parent
#: The report and the journal of the last run: `ondol report .build/last-run/junit.jsonl --html page.html`.
LAST = ROOT / ".build" / "last-run"
#: Most tests wait: for a deadline, a killed process, a compiler.
WORKERS = 2 * (os.cpu_count() or 1) + 1
#: Looking for all plugins that are installed and importing them costs every process more than a second.
FEW_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_timeout,_hypothesis_pytestplugin,ondol.pytest_plugin",
}
#: Tests that need a tool's cache make one of their own.
OPTIONS = ["-q", "--tools=none", "--retries=0", "--judge=off", "--flaky=fail"]
#: How many files are named at the end for the processor time that they took.
NAMED = 20
RED_SUITE = """
import os

def test_passes(): pass
def test_fails(): assert os.getpid() < 0
def test_takes_its_worker_with_it(): os._exit(0)
def test_comes_after_that(): pass
"""
RED = {"passed": 2, "failure": 2}


class Report(NamedTuple):
    """What pytest's JUnit file tells."""

    counts: Counter[str]
    #: Processor seconds by file: this and all its processes; conftest.py counts.
    processor: Counter[str]
    files: set[str]


def read(path: Path) -> Report:
    report = Report(Counter(), Counter(), set())
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return report
    for case in cases:
        # A module that could not be collected, or is skipped as a whole, is a case without a class.
        words = (case.get("classname") or case.get("name") or "").split(".")
        length = next((n for n, word in enumerate(words, 1) if word.startswith("test_")), len(words))
        file = "/".join(words[:length]) + ".py"
        report.files.add(file)
        report.counts[next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")] += 1
        report.processor[file] += sum(  # type: ignore[assignment]
            float(one.get("value", "0")) for one in case.iter("property") if one.get("name") == "cpu"
        )
    return report


def ondol_test(words: list[str], report: Path, base: Path, cwd: Path = ROOT, output: IO[bytes] | None = None) -> int:
    """Ctrl-C reaches it as it reaches us; it ends what it has started, so it is waited for."""
    where = [f"--basetemp={base}", f"--junitxml={report}", f"--journal={report.with_suffix('.jsonl')}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ondol", "test", f"--devices=cpu:{WORKERS}", *OPTIONS, *where, *words],
        cwd=cwd,
        env={**os.environ, **FEW_PLUGINS},
        stdout=output,
    )
    before = (
        signal.signal(signal.SIGINT, lambda *_: None),
        signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    )
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def sees_red(place: Path) -> bool:
    """Whether a failed test, and one that crashed, are called so: a runner that hid failures would hide this one too."""
    suite = place / "red"
    suite.mkdir()
    (suite / "test_red.py").write_text(RED_SUITE)
    (suite / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    with tempfile.TemporaryFile() as printed:
        status = ondol_test(["test_red.py"], place / "red.xml", place / "red-t", suite, printed)
        counts = read(place / "red.xml").counts
        seen = status == 1 and counts == RED
        if not seen:
            printed.seek(0)
            print(printed.read().decode(errors="replace"))
            print(f"RED: a red suite gave status {status} and {dict(counts)} instead of 1 and {RED}")
    return seen


def missing(report: Report, asked: list[str]) -> list[str]:
    """Files of which no test was run."""
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    wanted = {file for file in files if any(f"{file}/".startswith(f"{one.rstrip('/')}/") for one in asked)}
    return sorted(wanted - report.files)


def compile_ondol() -> None:
    """Where `PYTHONDONTWRITEBYTECODE` is set, as in many images, each of the thousands of Pythons that tests start would
    compile Ondol anew: a third of what a small `ondol test` costs. By its hash, so that a test may edit a source.
    """
    compileall.compile_dir(ROOT / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def main(words: list[str]) -> int:
    began = time.monotonic()
    asked = [word for word in words if (ROOT / word).exists()]
    everything_of_them = asked == words
    compile_ondol()
    place = Path(tempfile.mkdtemp(prefix="whole-"))
    place.chmod(0o1777)  # for tests that become other users
    if not sees_red(place):
        return 3
    shutil.rmtree(LAST, ignore_errors=True)
    LAST.mkdir(parents=True)
    status = ondol_test(words if asked else ["tests", *words], LAST / "junit.xml", place / "t")
    report = read(LAST / "junit.xml")
    for file, spent in report.processor.most_common(NAMED):
        print(f"PROCESSOR {spent:6.1f} s {file}")
    if everything_of_them and (unmet := missing(report, asked or ["tests"])):
        print(f"RED: no test of {', '.join(unmet)} was run")
        status = status or 3
    print(f"status {status} after {time.monotonic() - began:.0f} s, processor {sum(report.processor.values()):.0f} s")
    if status:
        print(f"What the tests left is in {place}")
    elif str(place) not in Path("/proc/self/mountinfo").read_text():  # a test may have left something mounted
        shutil.rmtree(place, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
