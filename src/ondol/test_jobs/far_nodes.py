"""A run on an engine's nodes: what they are told, and how their agents are reached."""

import os
from typing import Any

import pytest

from ondol.engines.api import Engine
from ondol.engines.links import Links, Terms
from ondol.fleet.controller.controller import Link
from ondol.fleet.controller.plan import Plan
from ondol.fleet.messages import Go
from ondol.test_jobs.local_agent import limits_of

#: Variables that decide what pytest collects; the engine or the user's template carries the others.
_CARRIED = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


class Far:
    """The agents of an engine's nodes, when a run is not on this machine."""

    def __init__(self, engine: Engine, directory: str, settings: dict[str, Any] | None) -> None:
        """`settings`: for the rooms on the nodes; None = no rooms."""
        self.engine, self._directory, self._settings = engine, directory, settings
        self._terms: Terms
        self._links: Links | None = None
        self.mode = f"on nodes of {engine.name}"

    def join(self, config: pytest.Config, plan: Plan) -> "Far":
        self._terms = _terms(config, self._directory, self._settings, plan)
        return self

    def start(self) -> Link:
        self._links = Links(self.engine, self._terms)
        return self._links

    def close(self) -> None:
        """Whatever ended the run, what the engine gave is given back."""
        if self._links is not None:
            self._links.bury()


def _terms(config: pytest.Config, directory: str, settings: dict[str, Any] | None, plan: Plan) -> Terms:
    options = config.option
    return Terms(
        # What every node program is told first.
        instructions={
            "arguments": [str(argument) for argument in config.invocation_params.args],
            "directory": directory,
            "environment": {name: os.environ[name] for name in _CARRIED if name in os.environ},
            "settings": settings,
        },
        go=Go(
            plan.ids,
            limits_of(options)._asdict(),
            {"hygiene": options.ondol_hygiene, "recycle_after": options.ondol_recycle_after},
            chosen=bool(options.ondol_rerun or options.ondol_shard),
        ),
        workers_per_device=options.ondol_workers_per_device,
        prepares=len(plan.prepares),
        engine_timeout=options.ondol_engine_timeout,
        collect_timeout=options.ondol_collect_timeout,
        silence=options.ondol_engine_silence,
        margin=options.ondol_engine_margin,
        show_errors=options.capture == "no",
    )
