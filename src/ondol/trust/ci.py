"""Reads the CI system's own variables into an `Event`. Fails closed: what is not recognised is not trusted.

Who sets these variables, and how far they can be believed on each system: docs/how-to/run-strangers-code.md.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ondol.trust.policy import Event, pull_request_scope

Environ = Mapping[str, str]
#: Parses a file, or returns None; GitHub keeps the event's details in one.
ReadJson = Callable[[str], Any]
#: Where a site names what only it can know; a variable or a flag would be written by the job itself.
_SITE_FILE = "/etc/ondol/ondol.toml on the machines that run it"
#: GitHub events that run the code of a branch, and of nothing else. The last two always run that of the default branch.
_GITHUB_BRANCH = {
    "push": "push to",
    "workflow_dispatch": "manual run of",
    "schedule": "scheduled run of",
    "repository_dispatch": "dispatched run of",
}
_GITHUB_DEFAULT_ONLY = ("schedule", "repository_dispatch")
#: Set by plugins for builds of changes that nobody has merged, also in jobs that are not multibranch ones.
_JENKINS_CHANGES = ("CHANGE_ID", "ghprbPullId", "gitlabMergeRequestIid", "GERRIT_CHANGE_NUMBER")
#: Systems that Ondol cannot ask, by a variable of theirs; most set `CI` besides.
_UNKNOWN = ("TF_BUILD", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID", "bamboo_buildKey", "PROW_JOB_ID")


def on_ci(env: Environ) -> bool:
    known = any(env.get(present) for present, _ in _SYSTEMS) or any(env.get(name) for name in _UNKNOWN)
    return known or env.get("CI", "").lower() not in ("", "0", "false", "no", "off")


def read_event(env: Environ, read_json: ReadJson, trusted_jobs: Sequence[str] = ()) -> Event:
    """`trusted_jobs`: what the site's file says (`trusted-jobs`)."""
    for present, reader in _SYSTEMS:
        if env.get(present):
            return reader(env, read_json, trusted_jobs)
    if on_ci(env):
        hint = "in jobs that build only merged code: env -u CI ondol run …"
        return Event("CI", "unknown", False, "a CI system that Ondol does not know", hint=hint)
    return Event("", "local", True, "not on CI")


def _named(name: str, trusted_jobs: Sequence[str]) -> bool:
    """Whether one of the patterns is this name. `*` ends at a slash: `team/*` names no branch or change below it."""
    parts, patterns = name.split("/"), [pattern.split("/") for pattern in trusted_jobs]
    return any(len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted)) for wanted in patterns)


def _hint(name: str) -> str:
    return f'if its branches are yours to trust: trusted-jobs = ["{name}"] in {_SITE_FILE}'


def _github(env: Environ, read_json: ReadJson, trusted_jobs: Sequence[str]) -> Event:
    kind, ref = env.get("GITHUB_EVENT_NAME", ""), env.get("GITHUB_REF", "")
    if kind in ("pull_request", "pull_request_target"):
        # refs/pull/421/merge
        number = ref.removeprefix("refs/pull/").split("/")[0]
        return Event("GitHub", kind, False, "a pull request", pull_request_scope(number, repository(env)))
    if kind not in _GITHUB_BRANCH:
        return Event("GitHub", kind, False, f"a {kind or 'nameless'} event")
    payload = read_json(env.get("GITHUB_EVENT_PATH", ""))
    about = payload.get("repository") if isinstance(payload, dict) else None
    about = about if isinstance(about, dict) else {}
    how, where = _GITHUB_BRANCH[kind], repository(env)
    if about.get("fork") is not False and not _named(where, trusted_jobs):
        because = (
            f"{how} a fork" if about.get("fork") else f"{how} what may be a fork (no payload says that it is none)"
        )
        return Event("GitHub", kind, False, because, hint=_hint(where))
    default = about.get("default_branch")
    if kind in _GITHUB_DEFAULT_ONLY or (default and ref == f"refs/heads/{default}"):
        return Event("GitHub", kind, True, f"{how} the default branch")
    if ref.startswith("refs/heads/") and env.get("GITHUB_REF_PROTECTED") == "true":
        return Event("GitHub", kind, True, f"{how} a protected branch")
    return Event("GitHub", kind, False, f"{how} a branch that is not protected")


def _gitlab(env: Environ, _read_json: ReadJson, trusted_jobs: Sequence[str]) -> Event:
    kind = env.get("CI_PIPELINE_SOURCE", "")
    number = env.get("CI_MERGE_REQUEST_IID", "")
    if number or kind in ("merge_request_event", "external_pull_request_event"):
        return Event("GitLab", kind, False, "a merge request", pull_request_scope(number, repository(env)))
    # A tag has protection of its own, which says nothing about where its commit came from.
    if env.get("CI_COMMIT_REF_PROTECTED") != "true" or not env.get("CI_COMMIT_BRANCH"):
        return Event("GitLab", kind, False, "not a protected branch")
    if _named(repository(env), trusted_jobs):
        return Event("GitLab", kind, True, "a protected branch")
    # Every fork has a protected branch, and no variable tells a fork from what it was forked from.
    because = "a protected branch of a project that may be a fork"
    return Event("GitLab", kind, False, because, hint=_hint(repository(env)))


def _buildkite(env: Environ, _read_json: ReadJson, _trusted_jobs: Sequence[str]) -> Event:
    number = env.get("BUILDKITE_PULL_REQUEST", "false")
    kind = env.get("BUILDKITE_SOURCE", "")
    if number != "false":
        return Event("Buildkite", kind, False, "a pull request", pull_request_scope(number, repository(env)))
    if kind not in ("webhook", "schedule"):
        # By hand, by API or from another pipeline: branch and commit are what somebody typed.
        return Event("Buildkite", kind, False, f"a build that was started by {kind or 'something nameless'}")
    default = env.get("BUILDKITE_PIPELINE_DEFAULT_BRANCH")
    if default and env.get("BUILDKITE_BRANCH") == default and not env.get("BUILDKITE_TAG"):
        return Event("Buildkite", kind, True, "the default branch")
    return Event("Buildkite", kind, False, "a branch that is not the default one")


def _jenkins(env: Environ, _read_json: ReadJson, trusted_jobs: Sequence[str]) -> Event:
    number = next((env[name] for name in _JENKINS_CHANGES if env.get(name)), "")
    if number:
        return Event("Jenkins", "change", False, "a change request", pull_request_scope(number, repository(env)))
    if env.get("BRANCH_IS_PRIMARY") == "true":
        return Event("Jenkins", "branch", True, "the primary branch")
    name = env.get("JOB_NAME", "")
    if name and _named(name, trusted_jobs):
        return Event("Jenkins", "job", True, f"the trusted job {name}")
    return Event("Jenkins", "branch", False, "a build that is not of the primary branch", hint=_hint(name or "JOB"))


_SYSTEMS: tuple[tuple[str, Callable[[Environ, ReadJson, Sequence[str]], Event]], ...] = (
    ("GITHUB_ACTIONS", _github),
    ("GITLAB_CI", _gitlab),
    ("BUILDKITE", _buildkite),
    ("JENKINS_URL", _jenkins),
)


def repository(env: Environ) -> str:
    """`github.com/acme/kernels`: the repository that a job works for, for a pull request the one that it asks."""
    if env.get("GITHUB_REPOSITORY"):
        return _joined(env.get("GITHUB_SERVER_URL") or "https://github.com", env["GITHUB_REPOSITORY"])
    if env.get("CI_PROJECT_PATH"):
        path = env.get("CI_MERGE_REQUEST_PROJECT_PATH") or env["CI_PROJECT_PATH"]
        return _joined(env.get("CI_SERVER_URL") or "https://gitlab.com", path)
    if env.get("BUILDKITE_REPO"):
        return _joined(env["BUILDKITE_REPO"])
    # Jenkins: where the change's own job stands. GIT_URL is that of the last checkout, whatever it was.
    if env.get("JENKINS_URL") and env.get("JOB_NAME"):
        return _joined(env["JENKINS_URL"], env["JOB_NAME"].rpartition("/")[0] or env["JOB_NAME"])
    return ""


def _joined(url: str, path: str = "") -> str:
    """Host and path of a URL or of `git@host:path`, without user, password, or `.git`."""
    host, _, rest = url.partition("://")[2].partition("/") if "://" in url else url.partition(":")
    whole = "/".join(part.strip("/") for part in (host.rpartition("@")[2], rest, path) if part.strip("/"))
    return whole.removesuffix(".git")


#: What a CI system says of a job, and in which of its variables.
_TOLD = {
    "job": ("GITHUB_JOB", "CI_JOB_NAME", "BUILDKITE_LABEL", "JOB_NAME", "SLURM_JOB_NAME"),
    "leg": ("CI_NODE_INDEX", "BUILDKITE_PARALLEL_JOB", "SLURM_ARRAY_TASK_ID"),
    "run": ("GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILDKITE_BUILD_ID", "BUILD_TAG", "SLURM_JOB_ID"),
    "runner": ("RUNNER_NAME", "CI_RUNNER_DESCRIPTION", "BUILDKITE_AGENT_NAME", "NODE_NAME"),
    "commit": ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT"),
}


def provenance(env: Environ) -> dict[str, str]:
    """Which commit and which run made an entry, as far as the CI system says."""
    found = {field: _first(env, field) for field in ("commit", "run", "job")}
    found["repository"] = repository(env) or _joined(env.get("GIT_URL", ""))
    return {field: value[:200] for field, value in found.items() if value}


def job_name(env: Environ) -> str:
    """This job, told apart from the others that run beside it: its name, its leg, its run, its runner; empty off CI."""
    found = {field: _first(env, field) for field in ("job", "leg", "run", "runner")}
    return ", ".join(f"{field} {value[:60]}" for field, value in found.items() if value)


def _first(env: Environ, field: str) -> str:
    return next((env[name] for name in _TOLD[field] if env.get(name)), "")
