"""Seed 003, end to end: a batch for simulated chips in one process, in a process each, and with `ondol test`.

`after.sh` is executed as it is, and the runner of `before.sh` with a part of the batch at a time.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linters import lint_shell
from seeds.incident_scripts import EXAMPLES, Told, check_diff, script_of, told_by
from seeds.script_parts import broken, script_in, without_ondol

FOLDER = EXAMPLES / "simpler"
pytestmark = pytest.mark.real


told = told_by("simpler")


def test_before_one_path_for_all_libraries_loads_the_wrong_one(told: Told) -> None:
    """D02, D06, D07: in one process the second library is the first."""
    stale = told.before["one_process"]["stale"]
    assert (stale["add"], stale["reduce"]) == ("", "")
    assert "wrong result: [2.0, 3.0, 4.0, 5.0]" in stale["triple"]
    assert "undefined symbol: build_square_graph" in stale["square"]


def test_before_a_crash_a_hang_or_a_compile_error_leaves_no_result(told: Told) -> None:
    """D12, D15, D17: not a single result is left, and the hang has to be killed by somebody else."""
    one = told.before["one_process"]
    assert one["crash"] == {"status": -11, "results": 0}
    assert one["hang"] == {"gave_up": True, "killed": True, "results": 0}
    assert one["broken"] == {"status": 1, "results": 0}


def test_before_a_bad_device_fails_what_it_was_given(told: Told) -> None:
    """D11: what the bad device was given has failed."""
    assert told.before["one_process"]["bad_device"] == {
        "add": "",
        "reduce": "set_device failed with code 507899",
        "square": "set_device failed with code 507899",
    }


def test_every_task_has_its_verdict(told: Told) -> None:
    """D11, D16 to D19, D21 to D23: the whole batch on one good and one bad device, with a table and a log per attempt."""
    batch = told.after["batch"]
    assert batch["verdicts"] == {
        "spin": "timeout",
        "wild": "crashed",
        "broken": "error",
        "scale": "failed",
        "add": "passed",
        "triple": "passed",
        "reduce": "passed",
        "square": "passed",
    }
    assert (batch["status"], batch["cases_in_junit"], batch["rows_in_tables"]) == (1, [8, 4], 12)
    assert (batch["attempts_of_crash"], batch["logs_of_crash"]) == (4, 4)
    assert "chip_tasks.py" in batch["hang_seen_in"][0]
    assert list(batch["quarantined"]) == ["sim1"]
    assert "507899" in batch["quarantined"]["sim1"]


def test_a_second_pass_runs_what_had_failed_and_hides_nothing(told: Told) -> None:
    """D09: before, the pinned pass takes the first one's place in the table; after, each has its report."""
    assert told.before["one_process"]["pinned"] == {"status": 0, "failures_in_the_table": 0}
    pinned = {"spin": "timeout", "wild": "crashed", "broken": "error", "scale": "passed"}
    assert told.after["batch"]["pinned"] == pinned
    assert told.after["batch"]["verdicts"]["scale"] == "failed"


def test_each_retry_is_on_a_device_that_was_not_tried(told: Told) -> None:
    """D14: three retries, four devices."""
    assert told.after["retries"] == {"devices": 4, "attempts": 4, "outcome": "crashed"}


def test_what_is_run_was_built_from_these_sources(told: Told) -> None:
    """D04: before, it passes with the old binary; after, what changed is built, and nothing else."""
    assert told.before["old_binary"] == {"passed": 4, "passed_when_built": 0}
    built = told.after["built"]
    assert (built["first"], built["second"], built["edited"], built["failed"]) == (6, 0, 2, 4)
    assert built["rebuild"] >= 6
    assert built["run_in_second"] == ["square", "triple"]


def test_a_process_has_one_runtime_and_compiles_nothing(told: Told) -> None:
    """D01, D12: a process has one runtime, and compiles nothing."""
    batch = told.after["batch"]
    assert (batch["processes_with_two_runtimes"], batch["compiled_on_a_device"]) == (0, 0)


def test_a_fixed_path_gives_the_right_verdict_and_is_named(told: Told) -> None:
    fixed = told.after["fixed_path"]
    assert fixed["verdicts"] == {"reduce": "passed", "square": "passed"}
    assert fixed["named"] == ["stale library"]
    assert fixed["suspects"] in (["reduce"], ["square"]), "the one that was compiled last, and so ran second"


def test_tasks_share_one_process_and_one_open_device_per_runtime(told: Told) -> None:
    """D01: a process for each before, one per runtime after, for the same tasks, of which none is compiled yet."""
    each, warm = told.before["process_each"], told.after["warm"]
    assert (each["passed"], each["processes"]) == (8, 8)
    assert (warm["passed"], warm["compiled"]) == (8, 6 + 8)
    assert (warm["opened"], warm["processes"]) == (2, 2)


def test_the_adapter_has_ten_lines() -> None:
    tree = ast.parse((FOLDER / "chip_tasks.py").read_text())
    (adapter,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert sum(isinstance(node, ast.stmt) for node in ast.walk(adapter)) < 10
    (find,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert sum(isinstance(node, ast.stmt) for node in ast.walk(find)) <= 3


def test_the_script_says_that_the_incident_is_gone(told: Told) -> None:
    assert (told.status, told.facts["gone"]) == (0, True)


def test_the_script_is_red_without_ondol(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step after is the step before; what does not depend on it is not made to happen once more."""
    incident = script_in(without_ondol("simpler", tmp_path, "after.sh", "before.sh"))
    for name in ("one_process", "old_binary", "process_each"):
        monkeypatch.setattr(incident, name, lambda *_, name=name: told.before[name])
    others = {
        "other_devices": "retries",
        "fault_named": "fixed_path",
        "built_from_what_is_there": "built",
        "warm": "warm",
    }
    for name, fact in others.items():
        monkeypatch.setattr(incident, name, lambda *_, fact=fact: told.after[fact])
    assert incident.showing.main("simpler", "", incident.tell, ["--json"]) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("before.one_process.stale", {}),
        ("before.one_process.crash.results", 3),
        ("before.one_process.hang.killed", False),
        ("before.one_process.bad_device", {}),
        ("before.one_process.broken.results", 1),
        ("before.one_process.pinned.failures_in_the_table", 1),
        ("before.old_binary.passed", 0),
        ("before.process_each.processes", 1),
        ("after.batch.status", 0),
        ("after.batch.verdicts.spin", "passed"),
        ("after.batch.cases_in_junit", [8, 8]),
        ("after.batch.rows_in_tables", 8),
        ("after.batch.pinned.add", "passed"),
        ("after.batch.logs_of_crash", 1),
        ("after.retries.devices", 2),
        ("after.built.second", 6),
        ("after.built.edited", 0),
        ("after.built.rebuild", 0),
        ("after.built.run_in_second", []),
        ("after.batch.quarantined", {}),
        ("after.batch.hang_seen_in", []),
        ("after.batch.attempts_of_crash", 1),
        ("after.batch.processes_with_two_runtimes", 1),
        ("after.batch.compiled_on_a_device", 1),
        ("after.fixed_path.verdicts.square", "failed"),
        ("after.fixed_path.named", []),
        ("after.fixed_path.suspects", []),
        ("after.warm.processes", 8),
        ("after.warm.opened", 7),
        ("after.warm.compiled", 0),
        ("after.warm.tasks", 0),
    ],
)
def test_the_script_notices_each_single_fact_that_is_wrong(told: Told, path: str, value: Any) -> None:
    incident = script_of("simpler")
    assert incident.happened(told.before)
    assert incident.gone(told.after)
    facts = broken(told.facts, path, value)
    assert not (incident.happened(facts["before"]) and incident.gone(facts["after"]))


@pytest.mark.parametrize("name", ["before.sh", "after.sh"])
def test_the_scripts_pass_the_linter(name: str) -> None:
    lint_shell((FOLDER / name).read_text(), "sh")


def test_the_step_before_ends_without_a_result(tmp_path: Path) -> None:
    """`before.sh` as it is: one task does not compile, so it ends with that and no result."""
    folder = without_ondol("simpler", tmp_path, "after.sh", "before.sh")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh", "before.sh"], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "RESULT" in done.stdout) == (1, False), done
    assert "broken_orch.c does not compile" in done.stderr


def test_the_page_shows_this_very_change() -> None:
    check_diff(FOLDER / "README.md", FOLDER / "before.sh", FOLDER / "after.sh")
