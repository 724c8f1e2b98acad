"""Somebody who can start a job, but not merge: whatever the event, the flags and the variables, `main` stays as it is."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ondol.trust import ci, policy
from people import Program
from walls.rooms import NIGHTLY, PULL_REQUEST, PULL_REQUEST_SCOPE, titles

pytestmark = pytest.mark.warm

GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "acme/ops", "GITHUB_EVENT_PATH": "/event"}
PUSH, MANUAL = {**GITHUB, "GITHUB_EVENT_NAME": "push"}, {**GITHUB, "GITHUB_EVENT_NAME": "workflow_dispatch"}
MAIN, BRANCH, PROTECTED = (
    {"GITHUB_REF": "refs/heads/main"},
    {"GITHUB_REF": "refs/heads/x"},
    {"GITHUB_REF": "refs/heads/release", "GITHUB_REF_PROTECTED": "true"},
)
OURS = {"repository": {"default_branch": "main", "fork": False}}
FORK = {"repository": {"default_branch": "main", "fork": True}}
GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_PATH": "acme/ops", "CI_COMMIT_BRANCH": "main", "CI_PIPELINE_SOURCE": "push"}
BUILDKITE = {"BUILDKITE": "true", "BUILDKITE_SOURCE": "webhook", "BUILDKITE_PIPELINE_DEFAULT_BRANCH": "main"}
BUILDKITE |= {"BUILDKITE_BRANCH": "main", "BUILDKITE_REPO": "git@github.com:acme/ops.git"}
JENKINS = {"JENKINS_URL": "https://ci.acme.com/", "JOB_NAME": "team/nightly-ops"}


def event(env: dict[str, str], payload: Any = None, trusted_jobs: tuple[str, ...] = ()) -> policy.Event:
    return ci.read_event(env, lambda _path: payload, trusted_jobs)


@pytest.mark.parametrize(
    ("env", "payload"),
    [
        pytest.param({"CI": "true"}, None, id="a system nobody knows"),
        pytest.param({"CI": "woodpecker"}, None, id="CI is its name"),
        pytest.param({"TF_BUILD": "True"}, None, id="a system that does not set CI"),
        pytest.param({**PUSH, **BRANCH}, OURS, id="push to a branch"),
        pytest.param({**MANUAL, **BRANCH}, OURS, id="manual run of a branch"),
        pytest.param({**PUSH, "GITHUB_REF": "refs/tags/main"}, OURS, id="a tag named as the default branch"),
        pytest.param({**PUSH, "GITHUB_REF": "refs/tags/v1", "GITHUB_REF_PROTECTED": "true"}, OURS, id="protected tag"),
        pytest.param({**PUSH, **MAIN}, FORK, id="push to a fork's default branch"),
        pytest.param({**PUSH, **PROTECTED}, FORK, id="push to a fork's protected branch"),
        pytest.param({**MANUAL, **MAIN}, FORK, id="manual run of a fork"),
        pytest.param({**GITHUB, "GITHUB_EVENT_NAME": "schedule", **MAIN}, FORK, id="scheduled run of a fork"),
        pytest.param({**GITHUB, "GITHUB_EVENT_NAME": "repository_dispatch", **MAIN}, FORK, id="dispatch in a fork"),
        pytest.param({**PUSH, **PROTECTED}, None, id="no payload: may be a fork"),
        pytest.param({**PUSH, **MAIN}, "not even a table", id="odd payload"),
        pytest.param({**PUSH, **MAIN}, {"repository": []}, id="odd repository"),
        pytest.param({**PUSH, **MAIN}, {"repository": {"default_branch": "main"}}, id="payload without fork"),
        pytest.param({**GITHUB, "GITHUB_EVENT_NAME": "pull_request_target", **MAIN}, OURS, id="pull_request_target"),
        pytest.param({**GITHUB, "GITHUB_EVENT_NAME": "issue_comment", **MAIN}, OURS, id="issue_comment"),
        pytest.param({**GITHUB, "GITHUB_EVENT_NAME": "workflow_run", **MAIN}, OURS, id="workflow_run"),
        pytest.param({**GITHUB, "GITHUB_EVENT_NAME": "merge_group", **PROTECTED}, OURS, id="merge_group"),
        pytest.param(GITLAB, None, id="GitLab: a branch"),
        pytest.param({**GITLAB, "CI_COMMIT_REF_PROTECTED": "true"}, None, id="GitLab: a protected branch, of a fork?"),
        pytest.param({**BUILDKITE, "BUILDKITE_BRANCH": "x"}, None, id="Buildkite: a branch"),
        pytest.param({**BUILDKITE, "BUILDKITE_SOURCE": "ui"}, None, id="Buildkite: somebody typed main"),
        pytest.param({**BUILDKITE, "BUILDKITE_SOURCE": "api"}, None, id="Buildkite: some program said main"),
        pytest.param({**BUILDKITE, "BUILDKITE_SOURCE": "trigger_job"}, None, id="Buildkite: another pipeline"),
        pytest.param({**BUILDKITE, "BUILDKITE_TAG": "main"}, None, id="Buildkite: a tag"),
        pytest.param(JENKINS, None, id="Jenkins: any job"),
        pytest.param({**JENKINS, "BRANCH_IS_PRIMARY": "false"}, None, id="Jenkins: a branch"),
    ],
)
def test_a_job_of_this_event_writes_nothing_at_all(env: dict[str, str], payload: Any) -> None:
    found = event(env, payload)
    assert (found.trusted, found.own_scope) == (False, "")
    assert found.because
    for how, configured in itertools.product(("auto", "on-success"), ("auto", "main", "nightly", "pr-7")):
        write = policy.scopes(configured, found).write
        assert write == ""
        assert not policy.may_publish(how, found, write, frozen=False, status=0).publish


@pytest.mark.parametrize(
    ("env", "scope"),
    [
        (PULL_REQUEST, PULL_REQUEST_SCOPE),
        ({**GITLAB, "CI_MERGE_REQUEST_IID": "7", "CI_COMMIT_REF_PROTECTED": "true"}, "pr-7@gitlab.com+acme+ops"),
        ({**BUILDKITE, "BUILDKITE_PULL_REQUEST": "7"}, "pr-7@github.com+acme+ops"),
        ({**JENKINS, "CHANGE_ID": "7", "BRANCH_IS_PRIMARY": "true"}, "pr-7@ci.acme.com+team"),
        ({**JENKINS, "ghprbPullId": "7"}, "pr-7@ci.acme.com+team"),
        ({**JENKINS, "gitlabMergeRequestIid": "7"}, "pr-7@ci.acme.com+team"),
        ({**JENKINS, "GERRIT_CHANGE_NUMBER": "7"}, "pr-7@ci.acme.com+team"),
    ],
)
def test_a_pull_request_writes_its_own_scope_even_in_a_trusted_job(env: dict[str, str], scope: str) -> None:
    found = event(env, OURS, ("*/*", "*/*/*"))
    assert (found.trusted, found.own_scope) == (False, scope)


@pytest.mark.parametrize(
    ("env", "payload", "because"),
    [
        ({**PUSH, **MAIN}, OURS, "push to the default branch"),
        ({**PUSH, **PROTECTED}, OURS, "push to a protected branch"),
        ({**MANUAL, **MAIN}, OURS, "manual run of the default branch"),
        ({**GITHUB, "GITHUB_EVENT_NAME": "schedule"}, OURS, "scheduled run of the default branch"),
        (BUILDKITE, None, "the default branch"),
        ({**JENKINS, "BRANCH_IS_PRIMARY": "true"}, None, "the primary branch"),
        ({}, None, "not on CI"),
        ({"CI": "false"}, None, "not on CI"),
    ],
)
def test_merged_code_is_trusted(env: dict[str, str], payload: Any, because: str) -> None:
    found = event(env, payload)
    assert (found.trusted, found.because) == (True, because)


@pytest.mark.parametrize(
    ("env", "payload", "name"),
    [
        (JENKINS, None, "team/nightly-ops"),
        ({**GITLAB, "CI_COMMIT_REF_PROTECTED": "true"}, None, "gitlab.com/acme/ops"),
        ({**PUSH, **MAIN}, FORK, "github.com/acme/ops"),
    ],
)
def test_a_site_names_what_only_it_can_know(env: dict[str, str], payload: Any, name: str) -> None:
    refused = event(env, payload)
    assert f'trusted-jobs = ["{name}"] in /etc/ondol/ondol.toml' in refused.hint
    assert event(env, payload, (name,)).trusted
    folder = name.rpartition("/")[0]
    assert event(env, payload, (f"{folder}/*",)).trusted
    assert not event(env, payload, ("*", folder, f"{name}/*", f"{folder}/x*")).trusted


@pytest.mark.parametrize(
    "asked",
    [
        (("--scope", "main", "--publish", "on-success"), {}),
        ((), {"ONDOL_SCOPE": "main", "ONDOL_PUBLISH": "on-success"}),
        ((), {"ONDOL_TRUSTED_JOBS": "*,*/*,*/*/*"}),
    ],
    ids=["flags", "variables", "trusted-jobs"],
)
def test_a_pull_request_that_asks_for_main_gets_its_own_scope(program: Program, store_path: Path, asked: Any) -> None:
    options, variables = asked
    job = program.job(store_path, "k", options=options, env={**PULL_REQUEST, **variables})
    assert job.status == 0
    assert (titles(store_path), titles(store_path, PULL_REQUEST_SCOPE)) == (set(), {"k"})
    said = [line for line in job.stderr.splitlines() if "scope main is not written" in line]
    assert len(said) == (0 if "ONDOL_TRUSTED_JOBS" in variables else 1), job.stderr


def test_a_push_to_a_fork_says_why_it_published_nothing_and_what_a_site_types(
    program: Program, store_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "event.json").write_text(json.dumps(FORK))
    env = {**PUSH, **MAIN, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    job = program.job(store_path, "k", options=("--scope", "main", "--publish", "on-success"), env=env)
    assert job.status == 0
    assert titles(store_path) == set()
    assert 'trusted-jobs = ["github.com/acme/ops"]' in job.stderr


def test_adopting_a_cache_is_publishing_too(program: Program, store_path: Path, tmp_path: Path) -> None:
    for env, wanted in ((PULL_REQUEST, (PULL_REQUEST_SCOPE, "0")), ({**PUSH, **BRANCH}, ("not protected", "2"))):
        done = program.ondol("store", "adopt", str(tmp_path), "--store", str(store_path), env=env)
        assert str(done.returncode) == wanted[1], done
        forced = program.ondol("store", "adopt", str(tmp_path), "--store", str(store_path), "--scope", "main", env=env)
        assert forced.returncode == 2, forced


def test_two_repositories_have_two_scopes_in_one_store(program: Program, store_path: Path) -> None:
    """`pr-7` of a repository that anybody may make must not be read by pull request 7 of ours."""
    theirs = {**PULL_REQUEST, "GITHUB_REPOSITORY": "mallory/ops"}
    assert program.job(store_path, "k", env=theirs).compiled == 1
    assert program.job(store_path, "k", env=PULL_REQUEST).compiled == 1
    assert program.job(store_path, "k", env=theirs).hits == 1
    listed = program.ondol("store", "ls", "--store", str(store_path)).stdout
    assert "pr-7@github.com+mallory+ops" in listed
    assert PULL_REQUEST_SCOPE in listed


def test_a_nightly_job_publishes_into_main(program: Program, store_path: Path) -> None:
    assert program.job(store_path, "k", env=NIGHTLY).status == 0
    assert titles(store_path) == {"k"}


@pytest.mark.parametrize("plant", ["fifo", "nested", "link"])
def test_what_a_step_puts_in_place_of_the_event_is_not_trusted(
    program: Program, store_path: Path, tmp_path: Path, plant: str
) -> None:
    """The event's file belongs to the runner's user, as every step does; the action's last step reads it again."""
    path = tmp_path / "event.json"
    if plant == "fifo":
        os.mkfifo(path)
    elif plant == "nested":
        path.write_text("[" * 200_000)
    else:
        path.symlink_to("/dev/zero")
    job = program.job(store_path, "k", env={**NIGHTLY, "GITHUB_EVENT_PATH": str(path)}, timeout=60)
    assert job.status == 0
    assert titles(store_path) == set()
    assert "may be a fork" in job.stderr
