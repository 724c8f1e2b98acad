"""Every shell line of the CI examples is executed: on success, on failure, on cancellation; and all of it is linted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from linters import lint_shell, lint_yaml
from people import ROOT, Program
from walls.rooms import NIGHTLY, rooms_in, titles

EXAMPLES = ROOT / "examples" / "ci"
STAND_INS = Path(__file__).parent / "stand_ins"
ENDS = {"success": 0, "failure": 1, "cancelled": None}


class Host:
    """A machine on which a CI system runs our steps: stand-ins for pytest, docker and srun, the real Ondol."""

    def __init__(self, program: Program, store: Path, place: Path) -> None:
        self.program, self.store, self.place = program, store, place
        self.rooms = place / "rooms"
        self.rooms.mkdir()
        bin_dir = place / "bin"
        shutil.copytree(STAND_INS, bin_dir, symlinks=True)
        self.env = {
            **program.env(),
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "PYTHON": program.python,
            "PROGRAMS": str(program.programs),
            "ONDOL_ROOM_DIR": str(self.rooms),
        }

    def sh(
        self, script: str, shell: tuple[str, ...] = ("bash", "-e"), /, **env: str
    ) -> subprocess.CompletedProcess[str]:
        # The examples name their sites' own places.
        script = script.replace("/ci-cache/ondol", str(self.store)).replace("/shared/ondol", str(self.store))
        return subprocess.run(
            [*shell, "-c", script],
            cwd=self.place,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def published(self) -> set[str]:
        return titles(self.store)

    def check(self, end: str) -> None:
        """However a job ends no room stays, and what it made is published; a cancelled one has made nothing here."""
        assert rooms_in(self.rooms) == []
        assert self.published() == ({"kernel"} if end != "cancelled" else set())


@pytest.fixture
def host(program: Program, shared_store: Path, place: Path) -> Host:
    return Host(program, shared_store, place)


def load(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text())


# -- GitHub --------------------------------------------------------------------------------------------------------


class Runner:
    """What the Actions runner does: files for variables, outputs, state and summary; inputs; the order of steps."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.files = {}
        for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"):
            path = host.place / name
            path.touch()
            self.files[name] = str(path)
        self.base = {**NIGHTLY, "CI": "true"}
        self.base |= {"RUNNER_TEMP": str(host.place), "GITHUB_WORKSPACE": str(host.place), **self.files}

    def read(self, name: str) -> dict[str, str]:
        lines = Path(self.files[name]).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def env(self) -> dict[str, str]:
        return {**self.base, **self.read("GITHUB_ENV")}

    def step(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.host.sh(script, ("bash", "--noprofile", "--norc", "-eo", "pipefail"), **{**self.env(), **env})

    def node(self, script: str, status: str, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """One stage of our action, with the inputs that the runner evaluates for it."""
        declared = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
        inputs = {name: str(field.get("default", "")) for name, field in declared.items()}
        inputs = {name: value.replace("${{ job.status }}", status) for name, value in {**inputs, **given}.items()}
        variables = {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        variables |= {f"STATE_{name}": value for name, value in self.read("GITHUB_STATE").items()}
        return subprocess.run(
            ["node", str(ROOT / script)],
            env={**self.host.env, **self.env(), **variables, "PYTHONPATH": "/nowhere"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def runner(host: Host) -> Runner:
    if not shutil.which("node"):
        pytest.skip("node is not installed here; GitHub's runner brings its own")
    return Runner(host)


@pytest.mark.parametrize("end", ENDS)
def test_github_action_leaves_no_room_and_loses_nothing_that_was_made(runner: Runner, end: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = load("github/steps.yml")["jobs"]["ops"]["steps"]
    given = {**steps[1]["with"], "store": str(runner.host.store)}
    opened = runner.node(action["runs"]["main"], "success", given)
    assert opened.returncode == 0, opened
    for step in steps[2:]:
        if end == "cancelled":
            break
        done = runner.step(step["run"], PYTEST_STATUS=str(ENDS[end]))
        assert done.returncode == ENDS[end], done
        if done.returncode:
            break
    closed = runner.node(action["runs"]["post"], end, given)
    assert closed.returncode == 0, closed
    runner.host.check(end)
    assert runner.env()["TMPDIR"] == ""
    assert "### Ondol" in Path(runner.files["GITHUB_STEP_SUMMARY"]).read_text()
    assert runner.read("GITHUB_OUTPUT")["room"].startswith(str(runner.host.rooms))


def test_github_action_is_not_fooled_by_what_steps_set(runner: Runner) -> None:
    """A step may set any variable for the steps after it; the action's last step is one of these."""
    given = {"store": str(runner.host.store), "tools": "triton", "publish": "never"}
    assert runner.node("action/open.js", "success", given).returncode == 0
    assert runner.step("pytest").returncode == 0
    evil = runner.host.place / "evil"
    evil.mkdir()
    (evil / "python3").write_text("#!/bin/sh\ntouch " + str(evil / "was-here"))
    (evil / "python3").chmod(0o755)
    with open(runner.files["GITHUB_ENV"], "a", encoding="utf-8") as file:
        file.write(f"ONDOL_PUBLISH=on-success\nPYTHONPATH={evil}\nPATH={evil}:{os.environ['PATH']}\n")
    closed = runner.node("action/close.js", "success", given)
    assert closed.returncode == 0, closed
    assert not (evil / "was-here").exists()
    assert runner.host.published() == set()


@pytest.mark.parametrize("status", ["", "nonsense", "Success"])
def test_github_action_knows_how_the_job_ended_when_it_publishes(runner: Runner, status: str) -> None:
    given = {"store": str(runner.host.store), "tools": "triton", "publish": "on-success"}
    assert runner.node("action/open.js", "success", given).returncode == 0
    assert runner.step("pytest").returncode == 0
    assert runner.node("action/close.js", "success", {**given, "status": status or "?"}).returncode == 0
    assert runner.host.published() == set()


def test_github_action_fails_no_job_for_want_of_a_python(runner: Runner) -> None:
    opened = runner.node("action/open.js", "success", {"python": "/no/such/python"})
    assert (opened.returncode, opened.stdout.startswith("::warning title=Ondol::")) == (0, True), opened
    assert runner.node("action/close.js", "success", {}).returncode == 0


def test_github_action_shows_what_was_asked_for(runner: Runner) -> None:
    given = {"store": str(runner.host.store), "tools": "triton", "options": "--require-warm"}
    assert runner.node("action/open.js", "success", given).returncode == 0
    assert runner.step("pytest").returncode == 0
    assert runner.node("action/close.js", "success", given).returncode == 122


@pytest.mark.parametrize("end", ENDS)
def test_the_example_for_github_containers_warms_a_job(host: Host, end: str) -> None:
    runner = Runner(host)
    job = load("github/container.yml")["jobs"]["ops"]
    steps = {step["name"]: step for step in job["steps"] if "run" in step}
    assert runner.step(steps["Open a room"]["run"]).returncode == 0
    if end != "cancelled":
        done = runner.step(steps["Tests"]["run"], PYTEST_STATUS=str(ENDS[end]), **job["env"])
        assert done.returncode == ENDS[end], done
    assert steps["Close the room"]["if"] == "always()"
    env = {name: value.replace("${{ job.status }}", end) for name, value in steps["Close the room"]["env"].items()}
    done = runner.step(steps["Close the room"]["run"], **env)
    assert done.returncode == 0, done
    host.check(end)


def test_container_example_is_warm_the_second_time(host: Host) -> None:
    runner = Runner(host)
    job = load("github/container.yml")["jobs"]["ops"]
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    said = [runner.step(script, STATUS="success", **job["env"]).stdout for _ in range(2) for script in scripts]
    hits = [json.loads(text)["hits"] for text in said if text.startswith("{")]
    assert hits == [0, 1]


# -- Jenkins -------------------------------------------------------------------------------------------------------


def groovy_shell(name: str) -> list[str]:
    """The scripts of the `sh` steps, as Groovy would hand them to the shell."""
    text = (EXAMPLES / "jenkins" / name).read_text()
    scripts = re.findall(r"'''(.*?)'''", text, re.DOTALL)
    return [re.sub(r"\\(.)", r"\1", script.replace("\\\n", "")) for script in scripts]


@pytest.mark.parametrize("end", ENDS)
def test_the_jenkins_library_warms_a_job(host: Host, end: str) -> None:
    open_it, close_it = groovy_shell("vars/ondol.groovy")
    jenkins = {"JENKINS_URL": "x", "BRANCH_IS_PRIMARY": "true", "WORKSPACE": str(host.place)}
    given = {"ONDOL_ROOM_FILE": str(host.place / "room"), "OPEN_STORE": str(host.store), "OPEN_TOOLS": "triton"}
    opened = host.sh(open_it, ("sh", "-xe"), **jenkins, **given)
    assert opened.returncode == 0, opened
    variables = dict(line.split("=", 1) for line in opened.stdout.strip().splitlines())
    assert variables["TRITON_CACHE_DIR"].startswith(str(host.rooms))
    if end != "cancelled":
        done = host.sh("pytest tests/ops", PYTEST_STATUS=str(ENDS[end]), **jenkins, **variables)
        assert done.returncode == ENDS[end]
    ended = "success" if end == "success" else "failure"
    closed = host.sh(close_it, ("sh", "-xe"), **jenkins, **given, **variables, ENDED=ended)
    assert closed.returncode == 0, closed
    host.check(end)
    assert host.sh(close_it, ("sh", "-xe"), **jenkins, **given, ENDED=ended).returncode == 0


@pytest.mark.parametrize("end", ENDS)
def test_the_jenkinsfile_warms_a_job(host: Host, end: str) -> None:
    open_it, run_it, on_success, otherwise = groovy_shell("Jenkinsfile")
    env = {"JENKINS_URL": "x", "BRANCH_IS_PRIMARY": "true", "WORKSPACE": str(host.place), "IMAGE": "image"}
    env |= {"ROOM_FILE": str(host.place / "room"), "FLAGS_FILE": str(host.place / "flags")}
    assert host.sh(open_it, ("sh", "-xe"), **env).returncode == 0
    if end != "cancelled":
        done = host.sh(run_it, ("sh", "-xe"), PYTEST_STATUS=str(ENDS[end]), **env)
        assert done.returncode == ENDS[end], done
    closed = host.sh(on_success if end == "success" else otherwise, ("sh", "-xe"), **env)
    assert closed.returncode == 0, closed
    host.check(end)


# -- GitLab, Buildkite, Slurm --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_the_example_for_gitlab_warms_a_job(host: Host, end: str, tmp_path: Path) -> None:
    template = load("gitlab/gitlab-ci.yml")[".ondol"]
    job = load("gitlab/gitlab-ci.yml")["ops"]
    ci = {"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_REF_PROTECTED": "true"}
    ci |= {"CI_PROJECT_DIR": str(host.place), "ONDOL_STORE": str(host.store), "CI_COMMIT_BRANCH": "main"}
    ci |= {"CI_PROJECT_PATH": "acme/ops", "CI_SERVER_URL": "https://gitlab.com", "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "ondol").mkdir()
    (tmp_path / "ondol" / "ondol.toml").write_text('trusted-jobs = ["gitlab.com/acme/ops"]\n')
    script = template["before_script"] + (job["script"] if end != "cancelled" else [])
    done = host.sh("\n".join(script), PYTEST_STATUS=str(ENDS[end] or 0), **ci)
    assert done.returncode == (ENDS[end] or 0), done
    word = {"success": "success", "failure": "failed", "cancelled": "canceled"}[end]
    done = host.sh("\n".join(template["after_script"]), CI_JOB_STATUS=word, **ci)
    assert done.returncode == 0, done
    host.check(end)


@pytest.mark.parametrize("end", ENDS)
def test_the_example_for_buildkite_warms_a_job(host: Host, end: str) -> None:
    hooks = EXAMPLES / "buildkite" / "hooks"
    command = load("buildkite/pipeline.yml")["steps"][0]["command"]
    status = {"success": "0", "failure": "1", "cancelled": ""}[end]
    script = f"""
. {hooks}/pre-command
[ "$TRITON_CACHE_DIR" != "" ]
{command if end != "cancelled" else ":"} || true
export BUILDKITE_COMMAND_EXIT_STATUS={status}
[ -n "$BUILDKITE_COMMAND_EXIT_STATUS" ] || unset BUILDKITE_COMMAND_EXIT_STATUS
. {hooks}/pre-exit
"""
    ci = {
        "BUILDKITE": "true",
        "BUILDKITE_SOURCE": "webhook",
        "BUILDKITE_JOB_ID": "j1",
        "BUILDKITE_BRANCH": "main",
        "ONDOL_STORE": str(host.store),
    }
    ci |= {"BUILDKITE_PIPELINE_DEFAULT_BRANCH": "main", "TMPDIR": str(host.place), "PYTEST_STATUS": status or "0"}
    done = host.sh(script, **ci)
    assert done.returncode == 0, done
    host.check(end)


def test_slurms_prolog_and_epilog_warm_every_job(host: Host) -> None:
    """Every job begins warm and nothing is published; without Ondol the node is not drained."""
    assert host.program.job(host.store, "kernel").status == 0
    scripts = {name: (EXAMPLES / "slurm" / f"{name}.sh").read_text() for name in ("prolog", "task_prolog", "epilog")}
    uid = str(os.geteuid())
    slurm = {"SLURM_JOB_ID": "9", "SLURM_JOB_UID": uid, "ONDOL_STATE": str(host.place / "state")}
    slurm |= {"ONDOL_STORE": str(host.store)}
    assert host.sh(scripts["prolog"], ("sh",), **slurm).returncode == 0
    exports = host.sh(scripts["task_prolog"], ("sh",), **slurm).stdout.splitlines()
    variables = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    done = host.sh("pytest; KERNEL=other pytest", **slurm, **variables)
    assert [json.loads(line)["hits"] for line in done.stdout.splitlines()] == [1, 0], done
    assert host.sh(scripts["epilog"], ("sh",), **slurm).returncode == 0
    assert rooms_in(host.rooms) == []
    assert host.published() == {"kernel"}
    assert list((host.place / "state").iterdir()) == []
    (host.place / "bin" / "ondol").write_text("#!/bin/sh\nexit 127\n")
    assert host.sh(scripts["prolog"], ("sh",), **slurm).returncode == 0
    assert host.sh(scripts["task_prolog"], ("sh",), **slurm).stdout == ""
    assert host.sh(scripts["epilog"], ("sh",), **slurm).returncode == 0


@pytest.mark.parametrize("end", ENDS)
def test_the_example_for_pyxis_warms_a_job(host: Host, end: str) -> None:
    script = (EXAMPLES / "slurm" / "pyxis.sbatch").read_text()
    if end == "cancelled":
        script = script.replace("\nsrun", "\nkill -TERM $$; srun")
    env = {"SLURM_JOB_ID": "9", "SLURM_TMPDIR": str(host.place), "ONDOL_STORE": str(host.store)}
    done = host.sh(script, ("bash",), PYTEST_STATUS=str(ENDS[end] or 0), **env)
    assert done.returncode == {"success": 0, "failure": 1, "cancelled": 143}[end], done
    host.check(end)


def test_the_example_for_ranks_warms_a_job(host: Host) -> None:
    script = (EXAMPLES / "slurm" / "job.sbatch").read_text().replace("python train.py", "pytest")
    done = host.sh(script, ("bash",), SLURM_JOB_ID="9", ONDOL_STORE=str(host.store))
    assert done.returncode == 0, done
    host.check("success")


# -- linting -------------------------------------------------------------------------------------------------------


def test_yaml_is_tidy() -> None:
    lint_yaml([ROOT / "action.yml", EXAMPLES])


def shell_of(path: Path) -> list[tuple[str, str]]:
    """(dialect, script) of everything in a file that a shell will execute."""
    if path.suffix == ".yml":
        return [("bash", text) for text in _scripts_in(yaml.safe_load(path.read_text()))]
    if path.suffix == ".groovy" or path.name == "Jenkinsfile":
        return [("sh", text) for text in groovy_shell(str(path.relative_to(EXAMPLES / "jenkins")))]
    return [("bash" if "bash" in path.read_text().splitlines()[0] else "sh", path.read_text())]


def _scripts_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _scripts_in(item)]
    if not isinstance(value, dict):
        return []
    found = [text for item in value.values() for text in _scripts_in(item)]
    for key in ("run", "command"):
        found += [value[key]] if isinstance(value.get(key), str) else []
    for key in ("before_script", "script", "after_script"):
        found += ["\n".join(value[key])] if isinstance(value.get(key), list) else []
    return found


FILES = sorted(path for path in EXAMPLES.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_shell_has_no_trap(path: Path) -> None:
    scripts = shell_of(path)
    assert scripts
    for dialect, script in scripts:
        lint_shell(script, dialect, "--exclude=SC1091")


def test_action_names_files_that_are_there() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["post-if"] == "always()"
    for stage in ("main", "post"):
        assert (ROOT / action["runs"][stage]).is_file()
    used = {name for step in load("github/steps.yml")["jobs"]["ops"]["steps"] for name in step.get("with", {})}
    assert used <= set(action["inputs"])
