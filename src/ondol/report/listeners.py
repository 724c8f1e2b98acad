"""Everybody who hears of results through pytest's hooks: reporters, plugins, the suite's conftests.

Tests run in workers. A conftest that notes something in `pytest_runtest_protocol` and looks it up in
`pytest_runtest_logreport` (FlagGems) finds nothing in the process that shows the results, and raises. In plain pytest
that would end the session. Here a listener of the suite that fails is named and left out, the others go on, and no
result is lost. An installed plugin that fails ends the session, as ever: those know of workers, from pytest-xdist.
"""

import os
from collections.abc import Callable, Iterator
from types import CodeType, TracebackType
from typing import Any

import pytest

#: What a hook raises on purpose, to end the session.
_MEANT = (pytest.exit.Exception, pytest.UsageError, pytest.Session.Interrupted, pytest.Session.Failed)


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
            in_order = [one.plugin for one in reversed(caller.get_hookimpls())]
            functions = {getattr(one.function, "__code__", None): one.plugin for one in caller.get_hookimpls()}
            failed = [(code, line) for code, line in _calls(error.__traceback__) if code in functions]
            if not failed or _is_installed(failed[0][0]):
                raise
            code, line = failed[0]
            plugin = functions[code]
            self._failed.setdefault(hook, []).append(plugin)
            self._note(_told(hook, f"{os.path.relpath(code.co_filename)}:{line}", error))
            self.tell(item, hook, (*without, *in_order[: in_order.index(plugin)]), **what)


def _calls(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def _is_installed(code: CodeType) -> bool:
    own = os.path.dirname(os.path.dirname(__file__))
    return code.co_filename.startswith(own) or not {"site-packages", "dist-packages"}.isdisjoint(
        code.co_filename.split(os.sep)
    )


def _told(hook: str, where: str, error: Exception) -> str:
    return (
        f"{where}: {hook} raised {type(error).__name__}: {error}. It is not called again in the process that shows the "
        "results. Tests run in workers, so it cannot see what other hooks, such as pytest_runtest_protocol, noted "
        "there. No verdict is lost; what this hook collects is incomplete"
    )
