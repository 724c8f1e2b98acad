"""Puts answers in the place of the functions that ask a device, from the moment a library is imported to the fork."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ondol.fleet import fork_check, threads
from ondol.testing.facts import values
from ondol.testing.facts.client import Client, kept_file
from ondol.testing.facts.questions import BY_MODULE, Questions, title

Function = Callable[..., Any]


class StandIns:
    """The functions that were replaced in this process, and who touched the device in spite of them; a plugin of
    pytest, which knows when the collection is over.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.on = True
        #: The stack of the first caller that made a library open its device; empty if nobody did.
        self.touched: list[traceback.FrameSummary] = []
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        #: Ours → what it stands for: a library imports its own functions from one module into another.
        self._real: dict[Function, Function] = {}
        self._finder = _Finder(self)

    def install(self) -> None:
        """Libraries that are imported from now on; those that are there already, at once."""
        sys.meta_path.insert(0, self._finder)
        for name, questions in BY_MODULE.items():
            if name in sys.modules:
                self.replace_in(sys.modules[name], questions)
        os.register_at_fork(after_in_child=self.real_again)

    def real_again(self) -> None:
        """In a forked worker, and when the collection is over without one."""
        self.on = False
        for owner, name, real, ours in reversed(self._replaced):
            # A suite may have put its own in the place since.
            if getattr(owner, name, None) is ours:
                setattr(owner, name, real)
        self._replaced.clear()
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.client.close()
        line = threads.culprit(self.touched, str(session.config.rootpath), (f"{os.sep}torch{os.sep}",))
        session.config.stash[fork_check.TOUCHED] = line or self.client.broken

    def pytest_unconfigure(self) -> None:
        self.client.close()

    # ------------------------------------------------------------------ replacing

    def replace_in(self, module: ModuleType, questions: Questions) -> None:
        """A library that looks otherwise than we know keeps its own functions: then it is noticed, not answered."""
        if not self.on:
            return
        if questions.holder:
            self._replace_when_made(getattr(module, questions.holder, None), questions)
            return
        initialised: Callable[[], bool] = getattr(module, "is_initialized", lambda: False)
        for name in questions.names:
            found = getattr(module, name, None)
            real = self._real.get(found, found) if callable(found) else None
            if real is not None:
                self._put(module, name, real, self._answered(title(questions, name), real, initialised))
        gate = getattr(module, questions.gate, None) if questions.gate else None
        if callable(gate):
            self._put(module, questions.gate, gate, self._watched(gate, initialised))

    def _put(self, owner: Any, name: str, real: Function, ours: Function) -> None:
        setattr(owner, name, ours)
        self._real[ours] = real
        self._replaced.append((owner, name, real, ours))

    def _replace_when_made(self, holder: Any, questions: Questions) -> None:
        """Functions that an object gets when it is made, such as Triton's, which are compiled first."""
        if holder is None:
            return
        make = holder.__init__

        @functools.wraps(make)
        def made(this: Any, *arguments: Any, **named: Any) -> None:
            make(this, *arguments, **named)
            for name in questions.names if self.on else ():
                real = getattr(this, name, None)
                if callable(real):
                    self._put(this, name, real, self._answered(title(questions, name), real, _torch_initialised))

        self._put(holder, "__init__", make, made)

    def _answered(self, question: str, real: Function, initialised: Callable[[], bool]) -> Function:
        def answered(*arguments: Any, **named: Any) -> Any:
            if not self.on or initialised():
                return real(*arguments, **named)
            answer = self.client.ask(question, arguments, named)
            if answer is None:
                return real(*arguments, **named)
            if "error" in answer:
                raise values.error_from_json(answer["error"])
            return values.from_json(answer["value"])

        return _dressed_as(real, answered)

    def _watched(self, gate: Function, initialised: Callable[[], bool]) -> Function:
        def watched(*arguments: Any, **named: Any) -> Any:
            if self.on and not self.touched and not initialised():
                self.touched = list(traceback.extract_stack(sys._getframe(1)))
            return gate(*arguments, **named)

        return _dressed_as(gate, watched)


def _dressed_as(real: Function, ours: Function) -> Function:
    try:
        functools.update_wrapper(ours, real)
    except (AttributeError, TypeError):
        pass  # a function of C without the usual attributes
    for extra in ("cache_clear", "cache_info", "cache_parameters"):
        if hasattr(real, extra):
            setattr(ours, extra, getattr(real, extra))
    return ours


def _torch_initialised() -> bool:
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())


class _Finder(importlib.abc.MetaPathFinder):
    """Notices that a module whose functions are to be replaced is imported."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        questions = BY_MODULE.get(fullname)
        # All of them are parts of a package that is imported: they lie on its path.
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if questions else None
        loader = spec.loader if spec else None
        if questions is None or loader is None:
            return None
        # Importing torch and opening a device takes seconds: they pass while the rest is imported here.
        self._stand_ins.client.get_ready(fullname)
        execute = loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            self._stand_ins.replace_in(module, questions)

        loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec


def begin(choice: str) -> StandIns | None:
    """`auto`: where there is a device to ask. To be called before any conftest is loaded."""
    if choice == "off" or (choice == "auto" and not fork_check.device_nodes()):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    made = StandIns(Client(kept_file(Path(base) / "ondol" / "device-facts")))
    made.install()
    return made
