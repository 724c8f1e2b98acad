"""Sabotages of a run on nodes, as a pytest plugin: `SABOTAGE` names the one that is done to the controller and all
nodes.
"""

# What is replaced must exist; that the replacement is another thing is the point of it.
# mypy: disable-error-code="method-assign, assignment, misc, arg-type, return-value, no-any-return"

from __future__ import annotations

import os
from pathlib import Path

from ondol.engines import links
from ondol.fleet import schedule
from ondol.fleet.agent.agent import Agent
from ondol.fleet.controller import losses
from ondol.testing import node


def nothing_is_compared() -> None:
    """Whatever a node collected is taken for what the controller collected."""
    node.in_order = lambda items, _go: items


def silence_is_golden() -> None:
    whole = links.Links._overdue
    links.Links._overdue = lambda self, node, now: "" if node.listens else whole(self, node, now)


def what_a_lost_node_ran_is_forgotten() -> None:
    losses.Losses.supervisor_gone = lambda _self, _slots, _how, _reason: []


def gangs_are_spread_over_nodes() -> None:
    whole = schedule.Scheduler._together
    schedule.Scheduler._together = lambda self, work, free: whole(self, work, free) or free[: self.works[work].devices]


def a_notice_is_not_heard() -> None:
    links.Links._on_notice = lambda _self, _node, _message: None
    Agent._on_term = lambda _self, *_: None


def waiting_has_no_limit() -> None:
    links.Links._overdue = lambda _self, _node, _now: ""


def pytest_configure() -> None:
    globals()[os.environ["SABOTAGE"]]()
    Path(os.environ["SABOTAGED"]).touch()
