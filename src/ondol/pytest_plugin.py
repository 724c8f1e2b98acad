"""The pytest plugin: inert until `--ondol-devices` (or `ondol_devices` in the ini file) asks for it.

Then pytest collects as ever, and `pytest_runner` runs what was collected on warm, supervised workers instead of in this
process. Reports come back through pytest's own hooks. This module is imported by every pytest that has Ondol installed,
so it imports next to nothing.
"""

import os
import sys
from argparse import ArgumentTypeError
from functools import partial
from typing import Any

import pytest

from ondol import config as settings
from ondol.errors import UsageError
from ondol.fleet.starts import FRONT_ENV, WORKER_ENV
from ondol.options import IN_PYTEST, Option
from ondol.testing import xdist_options

MARKER = (
    "ondol(devices=1, group='', timeout=None, memory='', isolate=False, runtime=''): what an item needs of its worker"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    group = parser.getgroup("ondol", "ondol: warm, supervised workers on devices")
    for option in IN_PYTEST:
        how: dict[str, Any] = {"dest": option.in_pytest, "help": option.about().replace("%", "%%")}
        if option.kind == "flag":
            group.addoption(f"--ondol-no-{option.name}", action="store_const", const=False, **how)
            how |= {"action": "store_const", "const": True}
        else:
            read = {"action": "append"} if option.kind == "list" else {"type": partial(_read, option)}
            how |= {"metavar": option.metavar, **read}
        group.addoption(f"--ondol-{option.name}", **how)
        if option.taken_by("ini"):
            parser.addini(option.in_pytest, f"the default of --ondol-{option.name}", default="")
    group.addoption(
        "--ondol-collection-fault",
        action="append",
        default=[],
        dest="ondol_collection_fault",
        help="used by `ondol test`",
    )
    xdist_options.add(parser, pluginmanager)


def _read(option: Option, text: str) -> Any:
    try:
        return settings.convert(option, text)
    except UsageError as error:
        raise ArgumentTypeError(error.line())


class Hooks:
    """Those that a suite or a vendor's plugin may implement."""

    @pytest.hookspec(firstresult=True)
    def pytest_ondol_device_fault(self, item: pytest.Item) -> str | None:
        """Called in the worker after every item: what makes the device's context unusable from now on, or None.

        Whoever says something ends the worker after this item; the next one runs in a fresh process.
        """


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    if _is_asked(early_config):
        # pytest rewrites every module of a distribution that has a plugin. An installed Ondol would be parsed anew by
        # each run, half a second of work, where bytecode is not written: in images that say so, or for other users.
        hook: Any = early_config.pluginmanager.rewrite_hook
        rewrites = hook in sys.meta_path
        if rewrites:
            sys.meta_path.remove(hook)
        from ondol import pytest_runner

        if rewrites:
            sys.meta_path.insert(0, hook)
        pytest_runner.before_conftests(early_config, parser, args)


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
    said = any(getattr(given, option.in_pytest, None) is not None for option in IN_PYTEST)
    return said or FRONT_ENV in os.environ or WORKER_ENV in os.environ or bool(config.getini("ondol_devices"))
