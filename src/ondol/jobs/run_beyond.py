"""A run on nodes of an engine, from the controller's side: what the nodes are told, and the link to all of them."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import pytest

from ondol.engines import choose
from ondol.engines.api import Engine
from ondol.engines.links import Links, Terms
from ondol.fleet.controller.plan import Plan
from ondol.fleet.messages import Go
from ondol.fleet.starts import Limits

#: Variables that decide what pytest collects; the engine or the user's template carries the others.
_CARRIED = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def wish_of(config: pytest.Config) -> choose.Wish:
    options = config.known_args_namespace
    names = ("engine", "launch", "nodes", "slurm", "srun", "agent")
    given = {name: str(getattr(options, f"ondol_{name}")) for name in names}
    directory = str(options.ondol_node_dir or config.invocation_params.dir)
    return choose.Wish(**given, devices=str(options.ondol_devices or "auto"), directory=directory)


def instructions(config: pytest.Config, wish: choose.Wish, settings: Any) -> dict[str, Any]:
    """What every node program is told first."""
    return {
        "arguments": [str(argument) for argument in config.invocation_params.args],
        "directory": wish.directory,
        "environment": {name: os.environ[name] for name in _CARRIED if name in os.environ},
        "settings": settings,
    }


def start_links(
    config: pytest.Config, engine: Engine, wish: choose.Wish, plan: Plan, limits: Limits, settings: Any
) -> Links:
    option = config.getoption
    terms = Terms(
        instructions=instructions(config, wish, settings),
        go=Go(
            [item.nodeid for item in plan.items],
            asdict(limits),
            {"hygiene": option("ondol_hygiene"), "recycle_after": option("ondol_recycle_after")},
            chosen=bool(option("ondol_rerun") or option("ondol_shard")),
        ),
        workers_per_device=option("ondol_workers_per_device"),
        prepares=len(plan.prepares),
        engine_timeout=option("ondol_engine_timeout"),
        collect_timeout=option("ondol_collect_timeout"),
        silence=option("ondol_engine_silence"),
        margin=option("ondol_engine_margin"),
        show_errors=option("capture") == "no",
    )
    return Links(engine, terms)
