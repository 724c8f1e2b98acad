"""Whose hooks run in a worker, so that it is for conftests and plugins what a worker of pytest-xdist is.

A forked worker has inherited a session that began in the controller. Who only listens there hears of all results there.
Who began something there, in `pytest_sessionstart`, ends it there: a directory or a server that the first worker takes
away is missing to all others. A spawned worker began its session itself.
"""

import inspect
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

#: Where the plugins are that write such files, or finish the whole run: the controller's alone do.
REPORTERS = (
    *("_pytest.junitxml", "_pytest.cacheprovider", "_pytest.stepwise"),
    *("pytest_reportlog", "pytest_html", "pytest_jsonreport", "pytest_github_actions_annotate_failures"),
    *("ondol.pytest_runner", "ondol.testing.node"),
)
#: Modules stay registered, for their fixtures; what these would do at the end is the controller's.
_THE_CONTROLLERS = (*REPORTERS, "pytest_benchmark")
#: What a conftest has in it that does something else in workers.
_KNOWS_WORKERS = re.compile(r"workerinput|workeroutput|xdist", re.IGNORECASE)


def unregister_reporters(config: pytest.Config) -> None:
    """In a fork: what the controller's plugins have open they would write to twice, and finish under its hands."""
    for plugin in list(config.pluginmanager.get_plugins()):
        if type(plugin).__module__.startswith(REPORTERS) or _only_listens(plugin):
            config.pluginmanager.unregister(plugin)


_LISTENING = {"pytest_runtest_logstart", "pytest_runtest_logreport", "pytest_runtest_logfinish"}
_RUNNING = ("pytest_runtest_", "pytest_fixture_", "pytest_pyfunc_", "pytest_exception_")


def _only_listens(plugin: object) -> bool:
    """An object of a conftest or plugin that hears of results and does nothing else: the controller's hears all."""
    if isinstance(plugin, ModuleType) or type(plugin).__module__.startswith(("_pytest.", "ondol.", "pluggy.")):
        return False
    hooks = {name for name in dir(plugin) if name.startswith(_RUNNING)}
    return bool(hooks) and hooks <= _LISTENING and "workeroutput" not in _source(type(plugin))


def others_listen(config: pytest.Config) -> bool:
    """Whether a conftest or plugin has one of these hooks; most suites have none, and pay nothing for it."""
    found = [one.plugin for hook in _LISTENING for one in getattr(config.hook, hook).get_hookimpls()]
    return not all(_module(plugin).startswith(("_pytest.", "ondol.")) for plugin in found)


def finish_session(session: pytest.Session, status: int, forked: bool) -> None:
    """What a worker of pytest-xdist does at its end: plugins and conftests write, or hand over, what they gathered."""
    manager = session.config.pluginmanager
    left_out = [one for one in manager.get_plugins() if _module(one).startswith(_THE_CONTROLLERS)]
    if forked:
        left_out += [one for one in manager.get_plugins() if _ends_what_began_elsewhere(one)]
    session.exitstatus = status
    manager.subset_hook_caller("pytest_sessionfinish", left_out)(session=session, exitstatus=status)
    if not forked:
        own = [one for one in manager.get_plugins() if _module(one).startswith(("_pytest.", "ondol."))]
        manager.subset_hook_caller("pytest_unconfigure", [*left_out, *own])(config=session.config)


def _module(plugin: Any) -> str:
    return str(getattr(plugin, "__name__", "") or type(plugin).__module__)


def _ends_what_began_elsewhere(plugin: Any) -> bool:
    if not hasattr(plugin, "pytest_sessionstart") or not hasattr(plugin, "pytest_sessionfinish"):
        return False
    finish = inspect.unwrap(plugin.pytest_sessionfinish)
    return not is_installed(inspect.getsourcefile(finish) or "") and not _KNOWS_WORKERS.search(_source(finish))


def is_installed(path: str) -> bool:
    """A package's file, and not one of the suite."""
    return not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep))


def _source(what: Any) -> str:
    """Of the whole file; empty where there is none."""
    try:
        return Path(inspect.getsourcefile(what) or "").read_text(errors="replace")
    except (OSError, TypeError):
        return ""
