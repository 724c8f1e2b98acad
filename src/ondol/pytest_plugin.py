"""The pytest plugin: inert until `--ondol-devices` (or `ondol_devices` in the ini file) asks for it.

Then pytest collects as ever, and `pytest_runner` runs what was collected on warm, supervised workers instead of in this
process. Reports come back through pytest's own hooks. This module is imported by every pytest that has Ondol installed,
so it imports next to nothing.
"""

from __future__ import annotations

import os

import pytest

from ondol.fleet.options import FRONT_ENV, IN_FILE, MARKER, OPTIONS, WORKER_ENV, destination
from ondol.testing import xdist_options


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    group = parser.getgroup("ondol", "ondol: warm, supervised workers on devices")
    for option in OPTIONS:
        group.addoption(f"--ondol-{option.name}", dest=destination(option), help=option.help, **option.kwargs)
    group.addoption(
        "--ondol-collection-fault",
        action="append",
        default=[],
        dest="ondol_collection_fault",
        help="used by `ondol test`",
    )
    for option in IN_FILE:
        parser.addini(destination(option), f"the default of --ondol-{option.name}", default="")
    xdist_options.add(parser, pluginmanager)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from ondol.testing import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if _is_asked(early_config):
        from ondol import pytest_runner

        pytest_runner.before_conftests(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if _is_asked(config):
        from ondol import pytest_runner

        pytest_runner.take_over(config)
    else:
        xdist_options.refuse_alone(config)


def _is_asked(config: pytest.Config) -> bool:
    """Whether anybody said anything to us: an option, the ini file, or the process that started this pytest."""
    given = config.known_args_namespace
    options = (getattr(given, destination(one), None) != one.kwargs.get("default") for one in OPTIONS)
    return FRONT_ENV in os.environ or WORKER_ENV in os.environ or any(options) or bool(config.getini("ondol_devices"))
