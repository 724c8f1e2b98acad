"""A second pass with another environment runs what had passed, forgets what never ran, or hides the first verdict."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from suites import Suite

pytestmark = pytest.mark.warm_pytest

RUNTIMES = """
import os
from pathlib import Path

class Steady:
    def run(self, task):
        with open(os.environ["LOG"], "a") as log: log.write(f"run {task.name}\\n")
        if task.name == "crash": os.abort()
        pinned = os.environ.get("PTO_ISA_ROOT") == "pinned"
        assert pinned or task.name != "needs-pin", "the newest PTO-ISA breaks this"

class Compiled(Steady):
    def prepare(self, task):
        if task.name == "broken": raise RuntimeError("does not compile")

class Lost(Compiled):
    def open(self, device):
        raise OSError("set_device failed with code 507899")
"""


@pytest.fixture
def batch(suite: Suite) -> Suite:
    suite.write(rt=RUNTIMES)
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    return suite


def tasks(suite: Suite, **runtimes: str) -> None:
    names = [f'[[task]]\nname = "{name}"\nruntime = "{kind}"\n' for kind in runtimes for name in runtimes[kind].split()]
    classes = [f'[runtime.{kind}]\nclass = "rt:{kind.capitalize()}"\n' for kind in runtimes]
    (suite.path / "t.ondol.toml").write_text("".join([*classes, *names]))


def cases(path: Path) -> dict[str, bool]:
    """Name → whether it passed."""
    return {
        case.attrib["name"]: case.find("failure") is None and case.find("error") is None
        for case in ElementTree.parse(path).iter("testcase")
    }


def test_only_what_failed_is_run_again_and_both_verdicts_stay(batch: Suite) -> None:
    tasks(batch, compiled="good fine needs-pin crash broken")
    first = batch.pytest("--junitxml=results.xml", "--ondol-retries=0", devices="sim:1")
    assert first.status == 1
    assert {word.split()[1] for word in first.log} == {"good", "fine", "needs-pin", "crash"}
    batch.log.write_text("")
    batch.variables = {"PTO_ISA_ROOT": "pinned"}
    second = batch.pytest("--lf", "--junitxml=pinned.xml", "--ondol-retries=0", devices="sim:1")
    assert second.verdicts == {"needs-pin": "passed", "crash": "crashed", "broken": "error"}
    assert sorted(second.log) == ["run crash", "run needs-pin"]
    assert not cases(batch.path / "results.xml")["needs-pin"]
    assert cases(batch.path / "pinned.xml") == {"needs-pin": True, "crash": False, "broken": False}


def test_what_lost_its_device_is_in_the_second_pass_too(batch: Suite) -> None:
    """Beside a failure the run ends with 1, and a second pass of the failed ones alone would be green without them.
    They are prepared first, so that the device has the failing one before it is set aside.
    """
    tasks(batch, steady="needs-pin", lost="one two three")
    first = batch.pytest("--ondol-retries=0", devices="sim:1")
    assert (first.status, first.verdicts["needs-pin"]) == (1, "failed")
    assert {first.verdicts[name] for name in ("one", "two", "three")} <= {"device-lost", "not-run", "error"}
    batch.variables = {"PTO_ISA_ROOT": "pinned"}
    second = batch.pytest("--lf", "--ondol-retries=0", devices="sim:1")
    assert set(second.verdicts) == {"needs-pin", "one", "two", "three"}
    assert second.status != 0
