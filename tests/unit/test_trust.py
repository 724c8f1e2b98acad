"""Who may write and what may be read: every row of the decision tables."""

from __future__ import annotations

import itertools

import pytest

from ondol.foreign_text import is_plain_name
from ondol.jobs.open_store import is_member
from ondol.trust import ci, owners, policy

ME, ROOT, NAMED, STRANGER, LISTED, NOBODY = 1000, 0, 1001, 2000, 3000, 65534


def trusts(
    marker_owner: int, lane_owner: int, *, nobody: int | None = None, anyone: bool = False, groups: tuple[str, ...] = ()
) -> bool:
    reader = owners.Reader(ME, frozenset({LISTED}), nobody)
    writers = [str(NAMED), *(f"@{group}" for group in groups), *["any"] * anyone]
    rule = owners.trusted_owner(reader, marker_owner, writers, lambda uid, group: (uid, group) == (STRANGER, "ci"))
    return rule(lane_owner)


@pytest.mark.parametrize("marker_owner", [ME, ROOT, LISTED, STRANGER, NAMED])
def test_owners_are_trusted_as_a_table_says(marker_owner: int) -> None:
    """Against a rule written another way: a table of who is trusted without and with the marker's word."""
    believed = marker_owner in (ME, ROOT, LISTED)
    for lane_owner in (ME, ROOT, LISTED, NAMED, STRANGER):
        expected = lane_owner in (ME, ROOT, LISTED) or (believed and lane_owner == NAMED)
        assert trusts(marker_owner, lane_owner) is expected, (marker_owner, lane_owner)


def test_any_means_any_only_if_the_store_is_believed() -> None:
    assert trusts(ROOT, STRANGER, anyone=True)
    assert not trusts(STRANGER, STRANGER, anyone=True)


def test_members_of_a_named_group_are_trusted() -> None:
    assert trusts(ROOT, STRANGER, groups=("ci",))
    assert not trusts(ROOT, STRANGER, groups=("other",))
    assert not trusts(STRANGER, STRANGER, groups=("ci",))


def test_limited_writers_count_in_their_scopes_only() -> None:
    """Over the whole table: a UID, a group and anybody, each for one kind of scope, told by an owner who is believed."""
    limits = (f"{NAMED}:pr-*", "@ci:nightly", "any:scratch")
    for marker_owner, owner, scope in itertools.product(
        (ROOT, STRANGER), (ME, ROOT, LISTED, NAMED, STRANGER), ("main", "pr-7", "nightly", "scratch", "")
    ):
        reader = owners.Reader(ME, frozenset({LISTED}), None)
        in_group = lambda uid, group: (uid, group) == (STRANGER, "ci")  # noqa: E731
        rule = owners.trusted_owner(reader, marker_owner, limits, in_group)
        given = {NAMED: {"pr-7", "scratch", ""}, STRANGER: {"nightly", "scratch", ""}}.get(owner, set())
        expected = owner in (ME, ROOT, LISTED) or (marker_owner == ROOT and scope in given)
        assert rule(owner, scope) is expected, (marker_owner, owner, scope)


def test_nobody_outside_a_user_namespace_is_trusted_for_looking_the_same() -> None:
    assert not trusts(ROOT, NOBODY, nobody=NOBODY, anyone=True)
    assert trusts(ROOT, NOBODY, nobody=None, anyone=True)
    reader = owners.Reader(NOBODY, frozenset(), NOBODY)
    assert not owners.believes(reader, NOBODY)


def test_unknown_users_and_groups_are_members_of_nothing() -> None:
    assert is_member(0, "root")
    assert not is_member(4_000_000, "root")
    assert not is_member(0, "no-such-group-anywhere")


TRUSTED = policy.Event("CI", "push", True, "the default branch")
PR7 = "pr-7@github.com+acme+ops"
UNTRUSTED = policy.Event("CI", "pull_request", False, "a pull request", PR7)
NAMELESS = policy.Event("CI", "pull_request", False, "a pull request")
LOCAL = policy.Event("", "local", True, "not on CI")


@pytest.mark.parametrize(
    ("configured", "event", "read", "write"),
    [
        ("auto", TRUSTED, ("main",), "main"),
        ("auto", LOCAL, ("main",), "main"),
        ("auto", UNTRUSTED, (PR7, "main"), PR7),
        ("auto", NAMELESS, ("main",), ""),
        ("nightly", TRUSTED, ("nightly", "main"), "nightly"),
        ("nightly", UNTRUSTED, (PR7, "nightly", "main"), PR7),
        ("main", UNTRUSTED, (PR7, "main"), PR7),
        ("main", NAMELESS, ("main",), ""),
        ("pr-7", UNTRUSTED, (PR7, "main"), PR7),
        ("pr-8", UNTRUSTED, (PR7, "main"), PR7),
        ("pr-8", TRUSTED, ("main",), ""),
        ("pr-8", LOCAL, ("pr-8", "main"), "pr-8"),
    ],
)
def test_an_event_decides_which_scopes_are_read_and_written(
    configured: str, event: policy.Event, read: tuple[str, ...], write: str
) -> None:
    found = policy.scopes(configured, event)
    assert (found.read, found.write) == (read, write)
    kept = configured in ("auto", write, "pr-7")
    assert bool(found.passed_over) is not kept


def test_untrusted_job_does_not_write_what_trusted_jobs_read() -> None:
    """C9, over the whole table: no setting lets an untrusted event write what any trusted job of a CI system reads."""
    names = ("auto", "main", "pr-7", PR7, "pr-8", "x", "nightly")
    read = {scope for name in names for scope in policy.scopes(name, TRUSTED).read}
    for how, configured, event, frozen, status in itertools.product(
        ("auto", "on-success"), names, (UNTRUSTED, NAMELESS), (True, False), (0, 1)
    ):
        scopes = policy.scopes(configured, event)
        decision = policy.may_publish(how, event, scopes.write, frozen=frozen, status=status)
        assert not (decision.publish and scopes.write in read)


@pytest.mark.parametrize(
    ("how", "event", "scope", "frozen", "status", "expected"),
    [
        ("never", LOCAL, "main", False, 0, False),
        ("on-success", NAMELESS, "", False, 0, False),
        ("on-success", LOCAL, "main", False, 1, False),
        ("auto", LOCAL, "main", False, 0, True),
        ("auto", LOCAL, "main", True, 0, False),
        ("auto", TRUSTED, "main", False, 0, True),
        ("auto", NAMELESS, "", False, 0, False),
        ("auto", UNTRUSTED, PR7, False, 0, True),
    ],
)
def test_only_what_settings_event_and_status_allow_is_published(
    how: str, event: policy.Event, scope: str, frozen: bool, status: int, expected: bool
) -> None:
    decision = policy.may_publish(how, event, scope, frozen=frozen, status=status)
    assert decision.publish is expected
    assert decision.because


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("github.com/acme/ops", "github.com/acme/op"),
        ("github.com/acme/ops", "ghe.acme.com/acme/ops"),
        ("github.com/acme/ops", "github.com/acme+ops"),
        ("gitlab.com/a/b/c", "gitlab.com/a/b+c"),
        ("git.acme.com:8443/a/b", "git.acme.com-8443/a/b"),
        ("jenkins/Team Ä/ops", "jenkins/Team-Ö/ops"),
        ("h/" + "x" * 500, "h/" + "x" * 501),
    ],
)
def test_two_repositories_do_not_share_the_scope_of_a_pull_request(one: str, other: str) -> None:
    scopes = [policy.pull_request_scope("7", name) for name in (one, other)]
    assert scopes[0] != scopes[1]
    assert all(is_plain_name(scope) and scope.startswith("pr-7@") for scope in scopes)


@pytest.mark.parametrize(("number", "repository"), [("", "h/a/b"), ("²", "h/a/b"), ("7/..", "h/a/b"), ("7", "")])
def test_a_change_without_number_or_repository_has_no_scope(number: str, repository: str) -> None:
    assert policy.pull_request_scope(number, repository) == ""


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"GITHUB_REPOSITORY": "acme/ops"}, "github.com/acme/ops"),
        ({"GITHUB_REPOSITORY": "acme/ops", "GITHUB_SERVER_URL": "https://ghe.acme.com"}, "ghe.acme.com/acme/ops"),
        ({"CI_PROJECT_PATH": "bob/ops", "CI_MERGE_REQUEST_PROJECT_PATH": "acme/ops"}, "gitlab.com/acme/ops"),
        ({"BUILDKITE_REPO": "git@github.com:acme/ops.git"}, "github.com/acme/ops"),
        ({"BUILDKITE_REPO": "https://user:secret@github.com/acme/ops.git"}, "github.com/acme/ops"),
        ({"JENKINS_URL": "https://ci.acme.com/", "JOB_NAME": "team/ops/PR-7"}, "ci.acme.com/team/ops"),
        ({}, ""),
    ],
)
def test_the_repository_is_what_the_ci_system_says(env: dict[str, str], expected: str) -> None:
    assert ci.repository(env) == expected


def test_provenance_takes_what_there_is() -> None:
    env = {"GITHUB_SHA": "abc", "GITHUB_RUN_ID": "7", "GITHUB_REPOSITORY": "o/r" + "x" * 500}
    found = ci.provenance(env)
    assert (found["commit"], found["run"], len(found["repository"])) == ("abc", "7", 200)
    assert ci.provenance({"GIT_URL": "https://bot:token@git.acme.com/ops.git"})["repository"] == "git.acme.com/ops"
    assert ci.provenance({}) == {}
