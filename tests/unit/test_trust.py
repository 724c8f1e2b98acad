"""Who may write and what may be read: every row of the decision tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ondol.store import marker
from ondol.trust import ci, membership, owners, policy

ME, ROOT, NAMED, STRANGER, LISTED, NOBODY = 1000, 0, 1001, 2000, 3000, 65534


def trusts(
    marker_owner: int, lane_owner: int, *, nobody: int | None = None, anyone: bool = False, groups: tuple[str, ...] = ()
) -> bool:
    reader = owners.Reader(ME, frozenset({LISTED}), nobody)
    rule = owners.trusted_owner(
        reader, marker_owner, {NAMED}, groups, anyone, lambda uid, group: (uid, group) == (STRANGER, "ci")
    )
    return rule(lane_owner)


@pytest.mark.parametrize("marker_owner", [ME, ROOT, LISTED, STRANGER, NAMED])
def test_owner_rule_oracle(marker_owner: int) -> None:
    """Against a rule written another way: a table of who is trusted without and with the marker's word."""
    believed = marker_owner in (ME, ROOT, LISTED)
    for lane_owner in (ME, ROOT, LISTED, NAMED, STRANGER):
        expected = lane_owner in (ME, ROOT, LISTED) or (believed and lane_owner == NAMED)
        assert trusts(marker_owner, lane_owner) is expected, (marker_owner, lane_owner)


def test_any_means_any_only_if_the_store_is_believed() -> None:
    assert trusts(ROOT, STRANGER, anyone=True)
    assert not trusts(STRANGER, STRANGER, anyone=True)


def test_group_members() -> None:
    assert trusts(ROOT, STRANGER, groups=("ci",))
    assert not trusts(ROOT, STRANGER, groups=("other",))
    assert not trusts(STRANGER, STRANGER, groups=("ci",))


def test_limited_writers_count_in_their_scopes_only() -> None:
    """Over the whole table: a UID, a group and anybody, each for one kind of scope, told by an owner who is believed."""
    limits = ((str(NAMED), "pr-*"), ("@ci", "nightly"), ("any", "scratch"))
    for marker_owner, owner, scope in itertools.product(
        (ROOT, STRANGER), (ME, ROOT, LISTED, NAMED, STRANGER), ("main", "pr-7", "nightly", "scratch", "")
    ):
        reader = owners.Reader(ME, frozenset({LISTED}), None)
        in_group = lambda uid, group: (uid, group) == (STRANGER, "ci")  # noqa: E731
        rule = owners.trusted_owner(reader, marker_owner, (), (), False, in_group, limits, marker.matches)
        given = {NAMED: {"pr-7", "scratch", ""}, STRANGER: {"nightly", "scratch", ""}}.get(owner, set())
        expected = owner in (ME, ROOT, LISTED) or (marker_owner == ROOT and scope in given)
        assert rule(owner, scope) is expected, (marker_owner, owner, scope)


def test_everybody_outside_a_user_namespace_looks_the_same() -> None:
    assert not trusts(ROOT, NOBODY, nobody=NOBODY, anyone=True)
    assert trusts(ROOT, NOBODY, nobody=None, anyone=True)
    reader = owners.Reader(NOBODY, frozenset(), NOBODY)
    assert not owners.believes(reader, NOBODY)


def test_unknown_users_and_groups_are_members_of_nothing() -> None:
    assert membership.is_member(0, "root")
    assert not membership.is_member(4_000_000, "root")
    assert not membership.is_member(0, "no-such-group-anywhere")


TRUSTED = policy.Event("CI", "push", True, "the default branch")
UNTRUSTED = policy.Event("CI", "pull_request", False, "a pull request", "pr-7")
NAMELESS = policy.Event("CI", "pull_request", False, "a pull request")
LOCAL = policy.Event("", "local", True, "not on CI")


@pytest.mark.parametrize(
    ("configured", "event", "read", "write"),
    [
        ("auto", TRUSTED, ("main",), "main"),
        ("auto", LOCAL, ("main",), "main"),
        ("auto", UNTRUSTED, ("pr-7", "main"), "pr-7"),
        ("auto", NAMELESS, ("main",), "main"),
        ("nightly", TRUSTED, ("nightly", "main"), "nightly"),
        ("main", UNTRUSTED, ("main",), "main"),
    ],
)
def test_scopes(configured: str, event: policy.Event, read: tuple[str, ...], write: str) -> None:
    assert policy.scopes(configured, event) == policy.Scopes(read, write)


def test_untrusted_job_writes_what_trusted_jobs_read() -> None:
    """C9, over the whole table: under `auto` no combination lets an untrusted event write `main`."""
    for configured, event, frozen, status in itertools.product(
        ("auto", "main", "pr-7", "x"), (UNTRUSTED, NAMELESS), (True, False), (0, 1)
    ):
        scopes = policy.scopes(configured, event)
        decision = policy.may_publish("auto", event, scopes.write, frozen=frozen, status=status)
        assert not (decision.publish and scopes.write == policy.TRUSTED_SCOPE)


@pytest.mark.parametrize(
    ("how", "event", "scope", "frozen", "status", "expected"),
    [
        ("never", LOCAL, "main", False, 0, False),
        ("on-success", UNTRUSTED, "main", False, 0, True),
        ("on-success", LOCAL, "main", False, 1, False),
        ("auto", LOCAL, "main", False, 0, True),
        ("auto", LOCAL, "main", True, 0, False),
        ("auto", TRUSTED, "main", False, 0, True),
        ("auto", TRUSTED, "main", False, 3, False),
        ("auto", UNTRUSTED, "main", False, 0, False),
        ("auto", UNTRUSTED, "pr-7", False, 0, True),
    ],
)
def test_may_publish(how: str, event: policy.Event, scope: str, frozen: bool, status: int, expected: bool) -> None:
    decision = policy.may_publish(how, event, scope, frozen=frozen, status=status)
    assert decision.publish is expected
    assert decision.because


def event(env: dict[str, str], payload: Any = None) -> policy.Event:
    return ci.read_event(env, lambda _path: payload)


GITHUB = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_REF": "refs/heads/main"}
DEFAULT_IS_MAIN = {"repository": {"default_branch": "main"}}


@pytest.mark.parametrize(
    ("env", "payload", "trusted", "scope"),
    [
        ({}, None, True, ""),
        ({"CI": "true"}, None, False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push", "GITHUB_REF_PROTECTED": "true"}, None, True, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push", "GITHUB_REF_PROTECTED": "false"}, DEFAULT_IS_MAIN, True, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/x"}, DEFAULT_IS_MAIN, False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push"}, None, False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push"}, "not even a table", False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push"}, {"repository": []}, False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "schedule"}, None, True, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "workflow_dispatch"}, None, True, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/421/merge"}, None, False, "pr-421"),
        ({**GITHUB, "GITHUB_EVENT_NAME": "pull_request_target"}, DEFAULT_IS_MAIN, False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "issue_comment"}, DEFAULT_IS_MAIN, False, ""),
        ({**GITHUB, "GITHUB_EVENT_NAME": "merge_group"}, DEFAULT_IS_MAIN, False, ""),
        ({"GITLAB_CI": "true", "CI_COMMIT_REF_PROTECTED": "true", "CI_PIPELINE_SOURCE": "push"}, None, True, ""),
        ({"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "push"}, None, False, ""),
        ({"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "12", "CI_COMMIT_REF_PROTECTED": "true"}, None, False, "pr-12"),
        (
            {"BUILDKITE": "true", "BUILDKITE_BRANCH": "main", "BUILDKITE_PIPELINE_DEFAULT_BRANCH": "main"},
            None,
            True,
            "",
        ),
        ({"BUILDKITE": "true", "BUILDKITE_BRANCH": "x", "BUILDKITE_PIPELINE_DEFAULT_BRANCH": "main"}, None, False, ""),
        ({"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "5"}, None, False, "pr-5"),
        ({"JENKINS_URL": "x", "CHANGE_ID": "3"}, None, False, "pr-3"),
        ({"JENKINS_URL": "x", "BRANCH_IS_PRIMARY": "true"}, None, True, ""),
        ({"JENKINS_URL": "x"}, None, False, ""),
    ],
)
def test_ci_events(env: dict[str, str], payload: Any, trusted: bool, scope: str) -> None:
    found = event(env, payload)
    assert (found.trusted, found.own_scope) == (trusted, scope)
    assert found.because


def test_provenance_takes_what_there_is() -> None:
    env = {"GITHUB_SHA": "abc", "GITHUB_RUN_ID": "7", "GITHUB_REPOSITORY": "o/r" + "x" * 500}
    found = ci.provenance(env)
    assert (found["commit"], found["run"], len(found["repository"])) == ("abc", "7", 200)
    assert ci.provenance({}) == {}
