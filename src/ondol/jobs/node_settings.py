"""The cache wing's settings for the rooms of far nodes: resolved once, where the run was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ondol.config import Settings
from ondol.jobs.context import read_json
from ondol.trust import ci, policy

#: What the front itself does with them.
_NOT_FOR_NODES = {"json", "quiet", "verbose", "strict"}


def for_nodes(settings: Settings, env: Mapping[str, str]) -> dict[str, Any]:
    """Whether and where to publish is decided here: a node that sees no variables of the CI system would take a pull
    request's job for somebody at a terminal.
    """
    given = {option.name: value.value for option, value in settings.rows() if value.origin != "default"}
    event = ci.read_event(env, read_json)
    write = policy.scopes(settings.scope, event).write
    may = policy.may_publish(settings.publish, event, write, frozen=settings.frozen, status=0)
    decided = {"scope": write, "publish": "on-success" if may.publish else "never"}
    return {**{name: value for name, value in given.items() if name not in _NOT_FOR_NODES}, **decided}
