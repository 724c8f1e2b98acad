"""What a killed run leaves on a node is ended by the next one; what belongs to somebody who lives is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from ondol import config
from ondol.host import killing, process, proctree
from ondol.host.process import Owner
from ondol.test_jobs import run_node
from ondol.trust import policy


def sleeper(owner: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env={**os.environ, killing.OWNER_VARIABLE: owner}, start_new_session=True)


@pytest.mark.fault
def test_orphans_of_a_dead_run_die_and_those_of_a_living_one_do_not() -> None:
    gone = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = Owner(gone.pid, process.start_time(gone.pid), process.boot_id(), process.pid_namespace())
    orphan, kept = sleeper(dead.encode().decode()), sleeper(process.myself().encode().decode())
    elsewhere = sleeper(Owner(dead.pid, dead.start, dead.boot, "pid:[1]").encode().decode())
    nonsense = sleeper("who knows")
    everyone = (orphan, kept, elsewhere, nonsense)
    try:
        assert orphan.pid not in killing.sweep_orphans(), "its owner still lives"
        gone.kill()
        gone.wait()
        assert orphan.pid in killing.sweep_orphans()
        assert orphan.wait(timeout=10) == -signal.SIGKILL
        assert all(proctree.alive(other.pid) for other in (kept, elsewhere, nonsense))
    finally:
        gone.stdin.close() if gone.stdin else None
        for one in everyone:
            one.kill()
            one.wait()


def test_a_tag_says_the_same_when_it_is_read_back() -> None:
    me = process.myself()
    assert Owner.decode(me.encode()) == me
    assert Owner.decode(b"") is None
    assert Owner.decode(b"x y z w") is None


GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "acme/ops"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "main"),
        (
            {**GITHUB, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/7/merge"},
            "pr-7@github.com+acme+ops",
        ),
        ({**GITHUB, "GITHUB_EVENT_NAME": "push"}, ""),
        ({"CI": "true"}, ""),
    ],
)
def test_a_node_does_not_publish_what_a_pull_request_compiled_as_if_it_were_merged(env, expected) -> None:
    """A machine reached by ssh has none of the CI system's variables: it must not decide by their absence."""
    here = config.merge({"store": "/s", "quiet": True, "scope": "main", "publish": "on-success"}, env)
    told = json.loads(json.dumps(run_node.for_nodes(here, env)))
    there, event = run_node.taken_apart(told, {})
    assert (there.store, there.quiet) == ("/s", False)
    write = policy.scopes(there.scope, event).write
    decision = policy.may_publish(there.publish, event, write, frozen=False, status=0)
    assert (write, decision.publish) == (expected, bool(expected))
