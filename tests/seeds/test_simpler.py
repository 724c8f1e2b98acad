"""Seed 003, end to end: a batch for simulated chips in one process, in a process each, and with `ondol test`.

`after.sh` is executed as it is, and the runner of `before.sh` with a part of the batch at a time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linting import lint_shell
from seeds.running import EXAMPLES, Told, check_diff, script_of, told_by
from seeds.telling import broken, script_in, without_ondol

FOLDER = EXAMPLES / "simpler"
pytestmark = pytest.mark.real


told = told_by("simpler")


def test_one_path_for_all_libraries_loads_the_right_one(told: Told) -> None:
    """D02, D06, D07: in one process the second library is the first."""
    stale = told.before["one_process"]["stale"]
    assert stale["add"] == ""
    assert "wrong result: [2.0, 3.0, 4.0, 5.0]" in stale["triple"]
    assert "undefined symbol: build_reduce_graph" in stale["reduce"]


def test_one_process_survives_a_crash_a_hang_or_a_compile_error(told: Told) -> None:
    """D12, D15, D17: not a single result is left, and the hang has to be killed by somebody else."""
    one = told.before["one_process"]
    assert one["crash"] == {"status": -11, "results": 0}
    assert one["hang"] == {"gave_up": True, "killed": True, "results": 0}
    assert one["broken"] == {"status": 1, "results": 0}


def test_a_bad_device_costs_nothing(told: Told) -> None:
    """D11: what the bad device was given has failed."""
    assert told.before["one_process"]["bad_device"] == {
        "add": "",
        "reduce": "set_device failed with code 507899",
        "square": "set_device failed with code 507899",
    }


def test_a_task_is_without_its_verdict(told: Told) -> None:
    """D11, D16 to D19, D22, D23: the whole batch on one good and one bad device."""
    batch = told.after["batch"]
    assert batch["verdicts"] == {
        "spin": "timeout",
        "wild": "crashed",
        "broken": "error",
        "add": "passed",
        "triple": "passed",
        "reduce": "passed",
        "square": "passed",
    }
    assert (batch["status"], batch["cases_in_junit"]) == (1, 7)
    assert batch["attempts_of_crash"] == 2
    assert "chip.py" in batch["hang_seen_in"][0]
    assert list(batch["quarantined"]) == ["sim1"]
    assert "507899" in batch["quarantined"]["sim1"]


def test_runtimes_are_mixed_or_compile_on_a_device(told: Told) -> None:
    """D01, D12: a process has one runtime, and compiles nothing."""
    batch = told.after["batch"]
    assert (batch["processes_with_two_runtimes"], batch["compiled_on_a_device"]) == (0, 0)


def test_a_fixed_path_gives_a_wrong_verdict_or_goes_unnamed(told: Told) -> None:
    fixed = told.after["fixed_path"]
    assert fixed["verdicts"] == {"reduce": "passed", "square": "passed"}
    assert fixed["named"] == ["stale library"]
    assert fixed["suspects"] in (["reduce"], ["square"]), "the one that was compiled last, and so ran second"


def test_every_task_pays_for_a_process_and_an_opened_device(told: Told) -> None:
    """D01: twelve processes before, one per runtime after, for the same tasks, of which none is compiled yet."""
    each, warm = told.before["process_each"], told.after["warm"]
    assert (each["passed"], each["processes"]) == (12, 12)
    assert warm["passed"] == 12
    assert warm["compiled"] >= 4, "it was cold"
    assert (warm["opened"], warm["processes"]) == (2, 2)


def test_the_script_says_so(told: Told) -> None:
    assert (told.status, told.facts["gone"]) == (0, True)


def test_the_script_cannot_fail(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step after is the step before; what happened before is not made to happen once more."""
    incident = script_in(without_ondol("simpler", tmp_path, "after.sh", "before.sh"))
    for name in ("one_process", "process_each"):
        monkeypatch.setattr(incident, name, lambda *_, name=name: told.before[name])
    assert incident.showing.main("simpler", "", incident.tell, ["--json"]) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("before.one_process.stale", {}),
        ("before.one_process.crash.results", 3),
        ("before.one_process.hang.killed", False),
        ("before.one_process.bad_device", {}),
        ("before.one_process.broken.results", 1),
        ("before.process_each.processes", 1),
        ("after.batch.status", 0),
        ("after.batch.verdicts.spin", "passed"),
        ("after.batch.cases_in_junit", 6),
        ("after.batch.quarantined", {}),
        ("after.batch.hang_seen_in", []),
        ("after.batch.attempts_of_crash", 1),
        ("after.batch.processes_with_two_runtimes", 1),
        ("after.batch.compiled_on_a_device", 1),
        ("after.fixed_path.verdicts.square", "failed"),
        ("after.fixed_path.named", []),
        ("after.fixed_path.suspects", []),
        ("after.warm.processes", 12),
        ("after.warm.opened", 7),
        ("after.warm.compiled", 0),
        ("after.warm.tasks", 0),
    ],
)
def test_the_script_overlooks(told: Told, path: str, value: Any) -> None:
    incident = script_of("simpler")
    assert incident.happened(told.before)
    assert incident.gone(told.after)
    facts = broken(told.facts, path, value)
    assert not (incident.happened(facts["before"]) and incident.gone(facts["after"]))


@pytest.mark.parametrize("name", ["before.sh", "after.sh"])
def test_shell_of_the_batch_has_a_trap(name: str) -> None:
    lint_shell((FOLDER / name).read_text(), "sh")


def test_step_before_does_not_start_its_runner(tmp_path: Path) -> None:
    """`before.sh` as it is: one task does not compile, so it ends with that and no result."""
    folder = without_ondol("simpler", tmp_path, "after.sh", "before.sh")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "SIM_BUILD": str(tmp_path / "build"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh", "before.sh"], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "RESULT" in done.stdout) == (1, False), done
    assert "broken.c does not compile" in done.stderr


def test_page_of_the_batch_shows_another_change() -> None:
    check_diff(FOLDER / "README.md", FOLDER / "before.sh", FOLDER / "after.sh")
