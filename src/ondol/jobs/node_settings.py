"""The cache wing's settings for the rooms of far nodes: resolved once, where the run was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ondol import config
from ondol.config import Settings
from ondol.jobs.job import read_json
from ondol.trust import ci, policy

#: What the front itself does with them.
_NOT_FOR_NODES = {"json", "quiet", "verbose", "strict", "sign-key", "retries"}
#: Beside the settings: what the CI system says here.
EVENT = "event"


def for_nodes(settings: Settings, env: Mapping[str, str]) -> dict[str, Any]:
    """The CI event is read here: a node that sees no variables of the CI system would take a pull request's job for
    somebody at a terminal.
    """
    rows = [(option.name, value) for option, value in settings.rows() if option.taken_by("run")]
    given = {name: value.value for name, value in rows if value.origin != "default"}
    event = ci.read_event(env, read_json, settings.trusted_jobs)
    return {**{name: value for name, value in given.items() if name not in _NOT_FOR_NODES}, EVENT: list(event)}


def taken_apart(told: Mapping[str, Any], env: Mapping[str, str]) -> tuple[Settings, policy.Event]:
    """On a node: the settings and the event that `for_nodes` sent."""
    settings = {name: value for name, value in told.items() if name != EVENT}
    return config.merge(settings, env), policy.Event(*told[EVENT])
