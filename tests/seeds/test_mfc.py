"""Seed 002, end to end: nine installs at once on a cache that is bad from the start, with real uv, before and after."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from linters import lint_shell, lint_yaml
from seeds.incident_scripts import EXAMPLES, Told, check_diff, script_of, told_by

FOLDER = EXAMPLES / "mfc"
SCRIPTS = ("before.sh", "flock.sh", "clean.sh", "after.sh")
#: Their TMPDIR was deleted; the last one's is a file.
BAD_TMPDIR = ["acc 1/3", "omp 1/3", "cpu 1/3", "cpu 3/3"]


told = told_by("mfc")


@pytest.mark.real
class TestIncident:
    @pytest.mark.parametrize("package", ["pandas", "scipy"])
    def test_without_ondol_every_leg_fails_and_so_does_the_next_run(self, told: Told, package: str) -> None:
        """C01, C02, C08: either form of the damage fails all legs, and all of the next run."""
        waves = told.before[package]
        assert [(wave["installed"], wave["signs"][package]) for wave in waves] == [(0, 9), (0, 9)]

    def test_a_lock_in_tmpdir_is_no_remedy(self, told: Told) -> None:
        """C17 to C21, C30, C31: legs with a bad TMPDIR never try, the others meet the entry as ever."""
        flock = told.before["flock"]
        assert flock["never_tried"] == BAD_TMPDIR
        assert (flock["installed"], sum(flock["signs"].values()) >= 5) == (0, True)

    def test_cleaning_the_cache_costs_good_wheels_too(self, told: Told) -> None:
        """C39: what Ondol is compared with does install, and fetches good wheels too; how many depends on who met whom."""
        clean = told.before["clean"]
        assert clean["installed"] >= 1
        assert clean["cleaned"] >= 1
        assert set(clean["fetched"]) > {"pandas", "scipy"}

    def test_with_ondol_every_leg_installs_whatever_its_tmpdir(self, told: Told) -> None:
        """C05, C18, C22, C30: all nine, whatever their TMPDIR."""
        assert (told.status, told.facts["gone"]) == (0, True)
        assert (told.after["first"]["installed"], told.after["second"]["installed"]) == (9, 9)

    def test_one_leg_heals_and_the_others_find_a_good_cache(self, told: Told) -> None:
        """C35, C37: one leg does, under the lock; the others find a good cache."""
        assert len(told.after["first"]["healed_by"]) == 1
        assert told.after["first"]["set_aside"] == ["pandas", "scipy"]
        assert told.after["second"]["set_aside"] == []

    def test_only_the_bad_wheels_are_fetched_and_only_once(self, told: Told) -> None:
        """C12, C39: two wheels are fetched, once; no other entry is touched."""
        assert told.after["first"]["fetched"] == ["pandas", "scipy"]
        assert told.after["second"]["fetched"] == []
        assert told.after["other_entries_untouched"] is True

    @pytest.mark.parametrize(("script", "installed"), [("before.sh", False), ("clean.sh", True)])
    def test_the_script_is_red_with_anything_else_than_ondol(
        self,
        told: Told,
        script: str,
        installed: bool,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Its second part with something else than Ondol: status 1, also if the legs end well on an emptied cache."""
        incident = script_of("mfc")
        monkeypatch.setattr(incident, "before", lambda *_: told.before)
        status = incident.main("mfc", "sabotaged", lambda story, place: incident.tell(story, place, script), ["--json"])
        facts = json.loads(capsys.readouterr().out)
        assert (status, facts["gone"]) == (1, False)
        assert bool(facts["after"]["first"]["installed"]) is installed


def _good() -> dict[str, Any]:
    plain = {"installed": 0, "signs": {"pandas": 9, "scipy": 9}}
    first = {"installed": 9, "healed_by": ["acc 1/3"], "set_aside": ["pandas", "scipy"], "fetched": ["pandas", "scipy"]}
    second = {"installed": 9, "healed_by": [], "set_aside": [], "fetched": []}
    flock = {"installed": 0, "never_tried": BAD_TMPDIR}
    before = {"pandas": [plain, plain], "scipy": [plain, plain], "flock": flock}
    facts = {"before": before, "after": {"first": first, "second": second, "other_entries_untouched": True}}
    return copy.deepcopy(facts)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda was, now: was["pandas"][1].update(installed=1),
        lambda was, now: was["scipy"][0]["signs"].update(scipy=8),
        lambda was, now: was["flock"].update(never_tried=[]),
        lambda was, now: now["first"].update(installed=8),
        lambda was, now: now["second"].update(installed=8),
        lambda was, now: now["first"].update(healed_by=["acc 1/3", "omp 1/3"]),
        lambda was, now: now["first"].update(set_aside=["numpy", "pandas", "scipy"]),
        lambda was, now: now["first"].update(fetched=["numpy", "pandas", "scipy"]),
        lambda was, now: now["second"].update(fetched=["pandas"]),
        lambda was, now: now.update(other_entries_untouched=False),
    ],
)
def test_the_script_notices_each_single_fact_that_is_wrong(spoil: Any) -> None:
    script, facts = script_of("mfc"), _good()
    assert script.is_gone(facts)
    spoil(facts["before"], facts["after"])
    assert not script.is_gone(facts)


# -- the workflow and its script -----------------------------------------------------------------------------------


def test_the_workflow_is_the_one_of_the_incident() -> None:
    lint_yaml([FOLDER / "workflow.yml"])
    job = yaml.safe_load((FOLDER / "workflow.yml").read_text())["jobs"]["self"]
    matrix = job["strategy"]["matrix"]
    legs = [f"{device} {shard}/3" for device, shard in itertools.product(matrix["device"], matrix["shard"])]
    assert legs == list(script_of("mfc").LEGS)
    (fetch,) = [step["run"] for step in job["steps"] if "run" in step]
    lint_shell(fetch)
    assert fetch == "bash toolchain/bootstrap.sh"  # as the incident's legs are started


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_pass_the_linter(name: str) -> None:
    lint_shell((FOLDER / name).read_text())


def test_the_change_is_one_word_before_the_command() -> None:
    before, after, remedy = ((FOLDER / name).read_text() for name in ("before.sh", "after.sh", "clean.sh"))
    lines = after.replace("guard uv pip install", "uv pip install").splitlines()
    assert set(before.splitlines()) <= set(lines)
    assert len(after.splitlines()) < len(remedy.splitlines())
    check_diff(FOLDER / "README.md", FOLDER / "before.sh", FOLDER / "after.sh")


@pytest.mark.parametrize("there", [True, False])
def test_the_script_installs_with_and_without_ondol(tmp_path: Path, there: bool) -> None:
    """Stand-ins that tell how they were called: what matters is which command the script starts."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uv", "ondol") if there else ("uv",):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", FOLDER / "after.sh"],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    install = "uv pip install --python build/venv -r toolchain/requirements.txt"
    assert done.stdout.splitlines()[1:] == [f"ondol guard -- {install}" if there else install, "Toolchain installed"]
