"""Seed 000, end to end: the nightly's 21 failures happen with real Triton, torch and users, and do not happen with Ondol."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from linters import lint_shell, lint_yaml
from people import needs_root
from seeds.incident_scripts import EXAMPLES, Told, check_diff, script_of, told_by
from walls.conftest import place, shared_store
from walls.test_examples import ENDS, Host, Runner, host

__all__ = ["host", "place", "shared_store"]

FOLDER = EXAMPLES / "tileops"
#: As the issue counts them.
CATEGORIES = {
    "test_gla_chunkwise_bwd": 3,
    "test_gla_chunkwise_fwd": 3,
    "test_gla_recurrence": 3,
    "test_mamba": 6,
    "test_moe_fused_moe": 6,
}


told = told_by("tileops")


@needs_root
@pytest.mark.root
@pytest.mark.real
class TestIncident:
    def test_without_ondol_every_test_of_the_issue_fails_as_reported(self, told: Told) -> None:
        """A01, A02, A05, A06, A09: every category of the issue, the plain form and the one that Inductor wraps."""
        assert told.before["failed"] == CATEGORIES
        assert (told.before["plain"], told.before["wrapped"], told.before["passed"]) == (15, 6, 0)

    def test_the_cache_is_blamed_and_not_the_operators(self, told: Told) -> None:
        """A03, A08: all 21 have a known cause, and the cache directory shows it."""
        explained = told.before["explained"]
        assert sum(explained.values()) == 21
        assert set(explained) <= {"triton-foreign-key-dir", "inductor-foreign-cache"}
        assert told.before["doctor"] == 1

    def test_with_ondol_every_test_passes_for_every_user(self, told: Told) -> None:
        """A21, A22: past compiling and caching, to numbers that are compared."""
        assert (told.status, told.facts["gone"]) == (0, True)
        for job in self.jobs(told):
            assert (job["status"], job["passed"], job["failed"]) == (0, 21, {})

    def test_jobs_are_safe_and_warm(self, told: Told) -> None:
        """A14: what root compiled is used by both, what the first one compiled by the second."""
        filled, first, second = (one["counted"] for one in (told.before["filled"], *self.jobs(told)))
        made = filled["triton"]["compiled"]
        assert made >= 15  # with a GPU Inductor's are among them
        assert first["triton"] == {"compiled": 0, "hits": made}
        assert first["inductor"]["compiled"] > 0
        assert (second["inductor"], second["triton"]["compiled"]) == ({"compiled": 0, "hits": 6}, 0)

    def jobs(self, told: Told) -> list[dict[str, Any]]:
        return [told.after["as 1000"], told.after["as 1001"]]

    def test_no_operator_code_is_changed(self, told: Told) -> None:
        """A23: what ran, before and after, is what is in the repository."""
        for path in (FOLDER / "ops").glob("*.py"):
            assert (told.place / "ops" / path.name).read_bytes() == path.read_bytes()

    def test_the_script_is_red_without_ondol(
        self, told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Its second part gets what the nightly really printed without Ondol: the same failures, status 1."""
        script = script_of("tileops")
        night = script.Ended("op tests", 1, (told.place / "nightly.log").read_text(), 0.0)

        class WithoutOndol(script.Nightly):  # type: ignore[name-defined]
            def __init__(self, place: Path) -> None:
                super().__init__(place)
                self.caches = told.place / "ci-cache"

            def with_ondol(self, uid: int, *options: str) -> Any:
                return night

        def before(story: Any, nightly: Any) -> None:
            story.facts["before"] = told.before

        monkeypatch.setattr(script, "Nightly", WithoutOndol)
        monkeypatch.setattr(script, "before", before)
        monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # other users take part, and a TMPDIR may be private
        status = script.main("tileops", "sabotaged", script.tell, ["--json"])
        facts = json.loads(capsys.readouterr().out)
        assert (status, facts["gone"]) == (1, False)
        assert facts["after"]["as 1000"]["failed"] == facts["after"]["as 1001"]["failed"] == CATEGORIES


@pytest.mark.parametrize(
    "spoil",
    [
        lambda facts: facts["before"].update(failed={}),
        lambda facts: facts["before"].update(wrapped=5),
        lambda facts: facts["after"].update(setup=[0, 3]),
        lambda facts: facts["after"]["as 1000"].update(status=122),
        lambda facts: facts["after"]["as 1001"].update(passed=20),
        lambda facts: facts["after"]["as 1000"]["counted"]["triton"].update(compiled=1),
        lambda facts: facts["after"]["as 1001"]["counted"]["inductor"].update(compiled=1),
        lambda facts: facts["after"]["as 1001"]["counted"]["triton"].update(hits=0),
    ],
)
def test_the_script_notices_each_single_fact_that_is_wrong(spoil: Any) -> None:
    warm = {"triton": {"compiled": 0, "hits": 15}, "inductor": {"compiled": 0, "hits": 6}}

    def good() -> dict[str, Any]:
        before = {"filled": {"passed": 21}, "failed": CATEGORIES, "plain": 15, "wrapped": 6}
        after = {
            f"as {uid}": {"status": 0, "passed": 21, "counted": json.loads(json.dumps(warm))} for uid in (1000, 1001)
        }
        return {"before": before, "after": {"setup": [0, 0], **after}}

    script, facts = script_of("tileops"), good()
    assert script.is_gone(facts)
    spoil(facts)
    assert not script.is_gone(facts)


# -- the workflow --------------------------------------------------------------------------------------------------


def load(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def test_the_workflows_pass_the_linters() -> None:
    lint_yaml([FOLDER / "before.yml", FOLDER / "after.yml"])
    for name in ("before.yml", "after.yml"):
        for step in load(name)["jobs"]["op_test"]["steps"]:
            lint_shell(step.get("run", ""))


def step_of(name: str) -> dict[str, Any]:
    (step,) = [step for step in load(name)["jobs"]["op_test"]["steps"] if step.get("id") == "op_tests"]
    return dict(step)


def test_the_workflow_changes_nothing_but_the_command() -> None:
    before, after = load("before.yml"), load("after.yml")
    was, now = step_of("before.yml")["run"], step_of("after.yml")["run"]
    assert now.split(" -- \\\n")[1].split() == was.split()
    for workflow in (before, after):
        for step in workflow["jobs"]["op_test"]["steps"]:
            step.pop("run", None)
    assert before == after
    check_diff(FOLDER / "README.md", FOLDER / "before.yml", FOLDER / "after.yml")


@pytest.mark.parametrize("end", ["success", "failure"])
def test_the_workflow_leaves_no_room_and_loses_nothing(host: Host, end: str) -> None:
    """As it is written, with the variables that the image and the workflow set, and on a cache of many users."""
    variables = {
        name: str(host.place / Path(value).name) for name, value in load("after.yml")["jobs"]["op_test"]["env"].items()
    }
    for cache in variables.values():
        Path(cache).mkdir()
        Path(cache).chmod(0o777)
    ended = Runner(host).step(step_of("after.yml")["run"], **variables, PYTEST_STATUS=str(ENDS[end]))
    assert ended.returncode == ENDS[end], ended
    assert not [left for cache in variables.values() for left in Path(cache).iterdir()]
    host.check(end)


def test_the_workflow_before_runs(host: Host) -> None:
    env = {"TRITON_CACHE_DIR": str(host.place / "ci-cache")}
    assert Runner(host).step(step_of("before.yml")["run"], **env).returncode == 0
    assert (host.place / "ci-cache").is_dir()
