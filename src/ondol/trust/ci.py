"""Reads the CI system's own variables into an `Event`. Fails closed: what is not recognised is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ondol.light import Any
from ondol.trust.policy import Event

Environ = Mapping[str, str]
#: GitHub events whose code has been merged, or was started by somebody with write access.
_GITHUB_TRUSTED = {"schedule": "scheduled run", "workflow_dispatch": "manual run", "repository_dispatch": "manual run"}


def read_event(env: Environ, read_json: Callable[[str], Any]) -> Event:
    """`read_json(path)` returns a parsed file or None; GitHub keeps the default branch's name in one."""
    for present, reader in _SYSTEMS:
        if env.get(present):
            return reader(env, read_json)
    if env.get("CI", "").lower() in ("1", "true", "yes"):
        return Event("CI", "unknown", False, "a CI system that Ondol does not know")
    return Event("", "local", True, "not on CI")


def _github(env: Environ, read_json: Callable[[str], Any]) -> Event:
    kind = env.get("GITHUB_EVENT_NAME", "")
    if kind in _GITHUB_TRUSTED:
        return Event("GitHub", kind, True, _GITHUB_TRUSTED[kind])
    if kind in ("pull_request", "pull_request_target"):
        # refs/pull/421/merge
        number = env.get("GITHUB_REF", "").removeprefix("refs/pull/").split("/")[0]
        return Event("GitHub", kind, False, "a pull request", f"pr-{number}" if number.isdigit() else "")
    if kind == "push":
        if env.get("GITHUB_REF_PROTECTED") == "true":
            return Event("GitHub", kind, True, "push to a protected branch")
        payload = read_json(env.get("GITHUB_EVENT_PATH", ""))
        repository = payload.get("repository") if isinstance(payload, dict) else None
        default = repository.get("default_branch") if isinstance(repository, dict) else None
        if default and env.get("GITHUB_REF") == f"refs/heads/{default}":
            return Event("GitHub", kind, True, "push to the default branch")
        return Event("GitHub", kind, False, "push to a branch that is not protected")
    return Event("GitHub", kind, False, f"a {kind or 'nameless'} event")


def _gitlab(env: Environ, _read_json: Callable[[str], Any]) -> Event:
    kind = env.get("CI_PIPELINE_SOURCE", "")
    number = env.get("CI_MERGE_REQUEST_IID", "")
    if number or kind in ("merge_request_event", "external_pull_request_event"):
        return Event("GitLab", kind, False, "a merge request", f"pr-{number}" if number.isdigit() else "")
    if env.get("CI_COMMIT_REF_PROTECTED") == "true":
        return Event("GitLab", kind, True, "a protected branch")
    return Event("GitLab", kind, False, "a branch that is not protected")


def _buildkite(env: Environ, _read_json: Callable[[str], Any]) -> Event:
    number = env.get("BUILDKITE_PULL_REQUEST", "false")
    kind = env.get("BUILDKITE_SOURCE", "")
    if number != "false":
        return Event("Buildkite", kind, False, "a pull request", f"pr-{number}" if number.isdigit() else "")
    default = env.get("BUILDKITE_PIPELINE_DEFAULT_BRANCH")
    if default and env.get("BUILDKITE_BRANCH") == default:
        return Event("Buildkite", kind, True, "the default branch")
    return Event("Buildkite", kind, False, "a branch that is not the default one")


def _jenkins(env: Environ, _read_json: Callable[[str], Any]) -> Event:
    number = env.get("CHANGE_ID", "")
    if number:
        return Event("Jenkins", "change", False, "a change request", f"pr-{number}" if number.isdigit() else "")
    if env.get("BRANCH_IS_PRIMARY") == "true":
        return Event("Jenkins", "branch", True, "the primary branch")
    return Event("Jenkins", "branch", False, "a build that is not of the primary branch")


_SYSTEMS: tuple[tuple[str, Callable[[Environ, Callable[[str], Any]], Event]], ...] = (
    ("GITHUB_ACTIONS", _github),
    ("GITLAB_CI", _gitlab),
    ("BUILDKITE", _buildkite),
    ("JENKINS_URL", _jenkins),
)


def provenance(env: Environ) -> dict[str, str]:
    """Which commit and which run made an entry, as far as the CI system says."""
    candidates = {
        "commit": ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT"),
        "run": ("GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILDKITE_BUILD_ID", "BUILD_TAG", "SLURM_JOB_ID"),
        "job": ("GITHUB_JOB", "CI_JOB_NAME", "BUILDKITE_LABEL", "JOB_NAME", "SLURM_JOB_NAME"),
        "repository": ("GITHUB_REPOSITORY", "CI_PROJECT_PATH", "BUILDKITE_REPO", "GIT_URL"),
    }
    found = {field: next((env[name] for name in names if env.get(name)), "") for field, names in candidates.items()}
    return {field: value[:200] for field, value in found.items() if value}


def job_name(env: Environ) -> str:
    """This job, told apart from the others that run beside it: its name, its leg, its run, its runner; empty off CI."""
    candidates = {
        "job": ("CI_JOB_NAME", "GITHUB_JOB", "BUILDKITE_LABEL", "JOB_NAME", "SLURM_JOB_NAME"),
        "leg": ("CI_NODE_INDEX", "BUILDKITE_PARALLEL_JOB", "SLURM_ARRAY_TASK_ID"),
        "run": ("GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILDKITE_BUILD_NUMBER", "BUILD_NUMBER", "SLURM_JOB_ID"),
        "runner": ("RUNNER_NAME", "CI_RUNNER_DESCRIPTION", "BUILDKITE_AGENT_NAME", "NODE_NAME"),
    }
    found = {field: next((env[name] for name in names if env.get(name)), "") for field, names in candidates.items()}
    return ", ".join(f"{field} {value[:60]}" for field, value in found.items() if value)
