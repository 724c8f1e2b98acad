"""The strategy is spread over settings, variables, mounts and the CI event, and no command says what comes of it: B19."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from people import Program
from walls.rooms import NIGHTLY

pytestmark = pytest.mark.warm


def strategy(program: Program, *options: str, **env: str) -> dict[str, tuple[str, str]]:
    done = program.ondol("config", "--json", *options, env={"HOME": "/nonexistent", **env})
    assert done.returncode == 0, done
    return {line["what"]: (line["value"], line["why"]) for line in json.loads(done.stdout)["job"]}


def test_a_job_at_a_desk_reads_and_publishes_main(program: Program, store_path: Path, tmp_path: Path) -> None:
    told = strategy(program, "--store", str(store_path), TMPDIR=str(tmp_path))
    assert told["room"][0] == f"below {tmp_path}"
    assert told["store"][0] == str(store_path)
    assert (told["reads"], told["publishes"][0]) == (("main", "not on CI"), "main")
    assert told["rooms"][0] == "one for each job"
    assert "triton" in told["caches"][1]


@pytest.mark.parametrize("event", ["pull_request", "schedule"])
def test_only_a_pull_request_publishes_nothing(program: Program, event: str) -> None:
    told = strategy(program, **{**NIGHTLY, "GITHUB_EVENT_NAME": event})
    assert "GitHub" in told["publishes"][1]
    assert (told["publishes"][0] == "nothing") is (event == "pull_request")


def test_what_a_user_has_set_counts_with_the_reason(program: Program, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    told = strategy(program, "--publish", "never", TRITON_CACHE_DIR=str(tmp_path))
    assert told["publishes"] == ("nothing", "publish = never")
    assert told["triton"][0] == "in the room"
    assert "other users can write it (mode 0777)" in told["triton"][1]
    kept = tmp_path / "own"
    kept.mkdir()
    assert strategy(program, TRITON_CACHE_DIR=str(kept))["triton"][0] == "left alone"


def test_a_place_for_rooms_that_is_passed_over_is_named(program: Program) -> None:
    value, why = strategy(program, "--room-dir", "/proc")["room"]
    assert value.startswith("below /")
    assert "room-dir /proc" in why


def test_ranks_of_a_step_share(program: Program) -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"}
    env["SLURM_LOCALID"] = "1"
    assert strategy(program, **env)["rooms"][0] == "one for all processes"


def test_for_people_it_is_a_table(program: Program) -> None:
    said = program.ondol("config", env={"HOME": "/nonexistent"}).stdout
    assert "a job here" in said
    assert [line.split()[0] for line in said.partition("a job here")[2].splitlines()[1:]][:3] == [
        "room",
        "rooms",
        "store",
    ]
