"""Seed 001, end to end: one writable Triton cache in every container of a real Slurm; and the same jobs with Ondol.

`before.sbatch` and `after.sbatch` are executed as they are, by sbatch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from linters import lint_shell
from people import Program, needs_root
from seeds.incident_scripts import EXAMPLES, Told, check_diff, script_of, told_by
from seeds.script_parts import broken, script_in, without_ondol

FOLDER = EXAMPLES / "tensorrt-llm"
JOBS, RANKS, KERNELS = 3, 2, 2


told = told_by("tensorrt-llm")


@needs_root
@pytest.mark.root
@pytest.mark.real
class TestIncident:
    def test_before_a_clean_up_of_the_shared_cache_fails_running_jobs(self, told: Told) -> None:
        """B03, B12: whoever removes anything there removes it under running jobs."""
        cleaned = told.before["cleaned"]
        assert cleaned["failed"] >= 1
        assert any("FileNotFoundError" in error and "/root/.triton/cache/" in error for error in cleaned["errors"])

    def test_before_one_torn_file_fails_every_job(self, told: Told) -> None:
        """B17: alone it works; after one torn file every job fails."""
        torn = told.before["torn"]
        assert (torn["alone"], torn["failed"]) == (True, torn["jobs"])
        assert all("JSONDecodeError" in error for error in torn["errors"])

    def test_before_a_read_only_mount_of_the_cache_fails_the_job(self, told: Told) -> None:
        """B01, B04, B05: filled with all that the job needs, at another path."""
        part = told.before["read_only"]
        assert (part["filled"], part["failed"]) == (True, 1)
        assert "Read-only file system" in part["errors"][0]

    def test_one_job_publishes_and_the_others_compile_nothing(self, told: Told) -> None:
        """B09, B11, B15, B21: each job's ranks in one room of their own; nobody compiles, nobody can write."""
        first, warm = told.after["post_merge"], told.after["pre_merge"]
        assert (first["failed"], first["published"]) == (0, KERNELS)
        assert (warm["failed"], warm["hits"], warm["compiled"]) == (0, JOBS * RANKS * KERNELS, 0)
        assert (warm["rooms"], warm["writes_refused"]) == (JOBS, JOBS * RANKS)

    def test_trouble_with_the_store_fails_no_job(self, told: Told) -> None:
        """B05, B17, B20: what killed them before, with the store: a job is colder, no more. What is missing it compiles."""
        trouble = told.after["trouble"]
        assert (trouble["begun"], trouble["failed"]) == (True, 0)
        assert trouble["hits"] >= JOBS * RANKS
        assert trouble["compiled"] >= JOBS

    def test_the_script_says_that_the_incident_is_gone(self, told: Told) -> None:
        assert (told.status, told.facts["gone"]) == (0, True)

    def test_the_script_is_red_without_ondol(self, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The jobs after are the jobs before; what happened before is not made to happen once more."""
        incident = script_in(without_ondol("tensorrt-llm", tmp_path, "after.sbatch", "before.sbatch"))
        parts = {"cleaned_while_in_use": "cleaned", "torn_entry": "torn", "read_only_mount": "read_only"}
        for function, name in parts.items():
            monkeypatch.setattr(incident, function, lambda *_, name=name: told.before[name])
        assert incident.showing.main("tensorrt-llm", "", incident.tell, ["--json"]) == 1

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("before.cleaned.errors", ["OSError: something else"]),
            ("before.torn.failed", 1),
            ("before.torn.errors", []),
            ("before.read_only.errors", [""]),
            ("after.post_merge.published", 1),
            ("after.pre_merge.failed", 1),
            ("after.pre_merge.compiled", 1),
            ("after.pre_merge.rooms", 4),
            ("after.pre_merge.writes_refused", 0),
            ("after.trouble.failed", 1),
            ("after.trouble.begun", False),
        ],
    )
    def test_the_script_notices_each_single_fact_that_is_wrong(self, told: Told, path: str, value: Any) -> None:
        incident = script_of("tensorrt-llm")
        assert incident.happened(told.before)
        assert incident.gone(told.after)
        facts = broken(told.facts, path, value)
        assert not (incident.happened(facts["before"]) and incident.gone(facts["after"]))


@pytest.mark.parametrize("name", ["before.sbatch", "after.sbatch", "stage.sh"])
def test_the_scripts_pass_the_linter(name: str) -> None:
    lint_shell((FOLDER / name).read_text(), "bash")


def test_the_page_shows_this_very_change() -> None:
    check_diff(FOLDER / "README.md", FOLDER / "before.sbatch", FOLDER / "after.sbatch")


def test_every_option_of_the_pipeline_is_one_of_ondol(program: Program) -> None:
    """Every option that the Groovy function can put before pytest is one that `ondol run` takes."""
    text = (FOLDER / "pipeline.groovy").read_text()
    body = text[text.index("def pytestUtility") :]
    words = [word for line in body.splitlines() if "words" in line for word in re.findall(r"'([^']*)'", line)]
    assert words[:4] == ["ondol", "run", "--store", "/store"]
    assert set(words) >= {"--frozen", "--publish", "never", "--"}
    for options in (["--frozen"], ["--publish", "never"], []):
        assert set(options) <= set(words)
        ran = program.ondol("run", "--store", "/nonexistent", "--tools", "auto,triton", *options, "--", "true")
        assert ran.returncode == 0, ran
    assert re.findall(r'"([^"]*)ondol:/store:', text) == ["${cluster.scratchPath}/"]
