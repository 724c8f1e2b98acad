"""Everybody who hears of results through pytest's hooks: reporters, plugins, the suite's conftests.

Tests run in workers. A conftest that notes something in `pytest_runtest_protocol` and looks it up in
`pytest_runtest_logreport` (FlagGems) finds nothing in the process that shows the results, and raises. In plain pytest
that would end the session. Here a listener of the suite that fails is named and left out, the others go on, and no
result is lost. An installed plugin that fails ends the session, as ever: those know of workers, from pytest-xdist.
"""

import os
from collections.abc import Callable, Iterator
from types import CodeType, TracebackType
from typing import Any, NamedTuple

import pytest

from ondol.fleet.hooks_in_workers import is_installed

#: What a hook raises on purpose, to end the session.
_MEANT = (pytest.exit.Exception, pytest.UsageError, pytest.Session.Interrupted, pytest.Session.Failed)


class Culprit(NamedTuple):
    """Who of those that a hook calls has raised."""

    plugin: Any
    #: For people, without what comes of it.
    told: str
    #: Those that were not called any more because of it, and wrap nothing.
    rest: list[Any]


class Listeners:
    def __init__(self, config: pytest.Config, note: Callable[[str], object]) -> None:
        self._config = config
        self._note = note
        #: Hook → plugins that failed in it.
        self._failed: dict[str, list[Any]] = {}

    def tell(self, item: pytest.Item, hook: str, without: tuple[Any, ...] = (), **what: Any) -> None:
        """`without`: plugins that are not to hear of it."""
        left_out = [*without, *self._failed.get(hook, ())]
        caller = getattr(item.ihook, hook)
        if left_out:
            elsewhere = getattr(item.ihook, "remove_mods", ())
            caller = self._config.pluginmanager.subset_hook_caller(hook, [*left_out, *elsewhere])
        try:
            caller(**what)
        except _MEANT:
            raise
        except Exception as error:
            culprit = of_the_suite(caller, error)
            if culprit is None:
                raise
            self._failed.setdefault(hook, []).append(culprit.plugin)
            self._note(f"{culprit.told} It is not called again; what it collects is incomplete")
            in_order = [one.plugin for one in reversed(caller.get_hookimpls())]
            self.tell(item, hook, (*without, *in_order[: in_order.index(culprit.plugin)]), **what)


def finish(caller: Any, error: Exception, what: dict[str, Any]) -> str | None:
    """At the end of the session a hook of the suite raised `error`: call those who come after it, and return what to
    say. None where it was raised on purpose, or is an installed plugin's.
    """
    culprit = None if isinstance(error, _MEANT) else of_the_suite(caller, error)
    if culprit is None:
        return None
    for one in culprit.rest:
        one.function(*(what[name] for name in one.argnames))
    return culprit.told


def of_the_suite(caller: Any, error: Exception) -> Culprit | None:
    in_order = list(reversed(caller.get_hookimpls()))
    functions = {getattr(one.function, "__code__", None): one for one in in_order}
    passing_on = {code for code, one in functions.items() if wraps(one) and code and _is_installed(code)}
    failed = [(code, line) for code, line in _calls(error.__traceback__) if code in functions.keys() - passing_on]
    if not failed or _is_installed(failed[0][0]):
        return None
    code, line = failed[0]
    plain = [one for one in in_order[in_order.index(functions[code]) + 1 :] if not wraps(one)]
    where = f"{os.path.relpath(code.co_filename)}:{line}"
    return Culprit(functions[code].plugin, _told(caller.name, where, error), plain)


def wraps(one: Any) -> bool:
    """An implementation of a hook that is called around the others."""
    return bool(one.wrapper or one.hookwrapper)


def _calls(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def _is_installed(code: CodeType) -> bool:
    own = os.path.dirname(os.path.dirname(__file__))
    return code.co_filename.startswith(own) or is_installed(code.co_filename)


def _told(hook: str, where: str, error: Exception) -> str:
    return (
        f"{where}: {hook} raised {type(error).__name__}: {error}. No verdict is lost. Tests run in workers: this "
        "process, which shows the results, cannot see what hooks such as pytest_runtest_protocol noted there."
    )
