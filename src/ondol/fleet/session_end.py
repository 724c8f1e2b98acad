"""The end of a worker's session: which of the suite's hooks run there, as they would in a worker of pytest-xdist.

A forked worker has inherited a session that began in the controller. Who began something there, in
`pytest_sessionstart`, ends it there: a directory or a server that the first worker takes away is missing to all others.
A spawned worker began its session itself.
"""

import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet.pytest_inside import REPORTERS

#: Modules stay registered, for their fixtures; what these would do at the end is the controller's.
_THE_CONTROLLERS = (*REPORTERS, "pytest_benchmark")
#: What a conftest has in it that does something else in workers.
_KNOWS_WORKERS = re.compile(r"workerinput|workeroutput|xdist", re.IGNORECASE)


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
    file = inspect.getsourcefile(inspect.unwrap(plugin.pytest_sessionfinish)) or ""
    installed = {"site-packages", "dist-packages"} & set(file.split(os.sep))
    try:
        return not installed and not _KNOWS_WORKERS.search(Path(file).read_text(errors="replace"))
    except OSError:
        return False
