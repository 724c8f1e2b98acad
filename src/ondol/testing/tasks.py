"""Tasks that are not tests: a `*.ondol.toml` file describes commands, and calls into warm runtimes of the user's.

A runtime is a class with `open(device)` (or `open(device, task)`), `prepare(task)`, `run(task)` and `close()`; all but
`run` may be left out.
It is opened once per worker, so it stays warm for all its tasks on that device; a worker never holds two runtimes.
`prepare` (compiling) runs before, on a CPU slot, without a device, in another process: what it returns, anything that
pickle takes, reaches `run` as `task.prepared`.
"""

import inspect
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet.controller.plan import wishes_of
from ondol.fleet.model import EXIT_CODE, TASK_SUFFIX
from ondol.fleet.worker import prepared
from ondol.fleet.worker.worker import DEVICE_KEY
from ondol.testing import built, task_table
from ondol.testing.fixtures import DeviceName

_OPEN_RUNTIMES = pytest.StashKey[dict[str, Any]]()
#: What a runtime said about its device when it was closed: nobody can ask it afterwards.
_LAST_FAULT = pytest.StashKey[str]()
_MARKED = ("devices", "group", "timeout", "memory", "isolate")


@dataclass
class Task:
    """What a runtime is given."""

    name: str
    directory: Path
    #: The task's own keys in the file.
    parameters: dict[str, Any] = field(default_factory=dict)
    #: What `prepare` returned.
    prepared: Any = None
    #: `--rebuild all`.
    rebuild: bool = False

    def built(self, output: Path, inputs: Iterable[object], make: Callable[[Path], object]) -> Path:
        """For `prepare`: what `make(path)` builds from `inputs` (files, directories, flags), until these change."""
        return built.built(self.directory / output, inputs, make, anew=self.rebuild)

    def unique(self, name: str) -> Path:
        """A path that no other task, process or attempt has ever used: the loader knows libraries by their path."""
        stem, dot, suffix = name.partition(".")
        base = Path(os.environ.get("TMPDIR", "/tmp"))
        return base / f"{stem}-{os.getpid()}-{uuid.uuid4().hex[:12]}{dot}{suffix}"

    def __getitem__(self, key: str) -> Any:
        return self.parameters[key]


class TaskFile(pytest.File):
    """One file of tasks."""

    def collect(self) -> Iterable[pytest.Item]:
        runtimes, tasks = task_table.read(self.path)
        for entry in tasks:
            name, runtime = entry["name"], entry.get("runtime", "")
            if "command" in entry:
                yield CommandItem.from_parent(self, name=name, entry=entry)
            else:
                key = f"{self.nodeid}:{runtime}"
                yield RuntimeItem.from_parent(self, name=name, entry=entry, runtime=key, made=runtimes[runtime])


class _TaskItem(pytest.Item):
    """What commands and runtime calls have in common."""

    ondol_prepare: Callable[[], Any] | None = None
    ondol_prepared: Any = None
    ondol_runtime = ""
    #: Told to whoever judges the device.
    ondol_open_failed = False

    def __init__(self, *, entry: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entry = entry
        self.runtime_name = str(entry.get("runtime", ""))
        directory = str(entry.get("directory", ""))
        rebuild = self.config.getoption("ondol_rebuild") == "all"
        self.task = Task(self.name, self.path.parent / directory, entry, rebuild=rebuild)
        # For `-k`: what somebody who looks at the batch would call it by.
        self.extra_keyword_matches.update(filter(None, (self.runtime_name, directory)))
        wishes = {key: entry[key] for key in _MARKED if key in entry}
        if wishes:
            self.add_marker(pytest.mark.ondol(**wishes))
        for mark in entry.get("markers", []):
            self.add_marker(mark)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"task {self.name}"

    def device(self) -> DeviceName:
        place = self.config.stash.get(DEVICE_KEY, None)
        return DeviceName.of(place.devices if place else [])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CommandFailed | prepared.Unsendable):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class CommandFailed(Exception):
    """A command of a task ended badly."""


class CommandItem(_TaskItem):
    """A task that is a command."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if "prepare" in self.entry:
            self.ondol_prepare = self._prepare

    def _run(self, words: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **{name: str(value) for name, value in self.entry.get("env", {}).items()}}
        return subprocess.run(words, cwd=self.task.directory, env=env, text=True, check=False, **how)

    def _prepare(self) -> bool:
        command = [str(word) for word in self.entry["prepare"]]
        done = self._run(command, capture_output=True)
        if done.returncode:
            raise CommandFailed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return True

    def runtest(self) -> None:
        """Its output goes where the test's output goes."""
        words = [str(word).replace("{device}", self.device()) for word in self.entry["command"]]
        try:
            done = self._run(words, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise CommandFailed(f"{words[0]} cannot be started: {error}")
        self.user_properties.append((EXIT_CODE, done.returncode))
        if done.returncode < 0:
            raise CommandFailed(f"{' '.join(words)}: killed by {signal.Signals(-done.returncode).name}")
        if done.returncode:
            raise CommandFailed(f"{' '.join(words)}: exit status {done.returncode}")


class RuntimeItem(_TaskItem):
    """A task that is a call into a warm runtime."""

    def __init__(self, *, runtime: str, made: type, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ondol_runtime = runtime
        self.ondol_unit = runtime
        self._class = made
        if hasattr(made, "prepare"):
            self.ondol_prepare = self._prepare

    def _prepare(self) -> Any:
        return self._class().prepare(self.task)

    def setup(self) -> None:
        opened = self.config.stash.setdefault(_OPEN_RUNTIMES, {})
        if self.ondol_runtime not in opened:
            opened[self.ondol_runtime] = self._open()
            # With the session's other fixtures, when the worker leaves.
            self.session.addfinalizer(lambda: self._close(opened.pop(self.ondol_runtime)))

    def _open(self) -> Any:
        runtime = self._class()
        if hasattr(runtime, "open"):
            first = []
            if "task" in inspect.signature(runtime.open).parameters:
                # Many runtimes are started with binaries that `prepare` has built.
                self.task.prepared = prepared.unpack(self.name, self.ondol_prepared)
                first = [self.task]
            try:
                runtime.open(self.device(), *first)
            except Exception as error:
                self.ondol_open_failed = True  # a fault of the device until another proves otherwise
                where = ", ".join(self.device().names) or "no device"
                raise RuntimeError(f"{self.ondol_runtime} could not be opened on {where}: {error}")
        return runtime

    def _close(self, runtime: Any) -> None:
        if fault := _ask(runtime):
            self.config.stash[_LAST_FAULT] = fault
        if hasattr(runtime, "close"):
            runtime.close()

    def runtest(self) -> None:
        self.task.prepared = prepared.unpack(self.name, self.ondol_prepared)
        self.config.stash[_OPEN_RUNTIMES][self.ondol_runtime].run(self.task)


class TaskPlugin:
    """Collects tasks; registered only in runs of ours."""

    def __init__(self, runtimes: list[str] | None = None) -> None:
        self._runtimes = runtimes or []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not self._runtimes:
            return
        found = [(item, str(getattr(item, "runtime_name", "") or wishes_of(item).get("runtime", ""))) for item in items]
        names = {name for _, name in found}
        for name in self._runtimes:
            if name not in names:
                there = task_table.near(name, names - {""})
                raise pytest.UsageError(f"--runtime: nothing collected has a runtime {name!r}{there}")
        items[:] = [item for item, name in found if name in self._runtimes]
        config.hook.pytest_deselected(items=[item for item, name in found if name not in self._runtimes])

    @pytest.hookimpl
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return TaskFile.from_parent(parent, path=file_path) if file_path.name.endswith(TASK_SUFFIX) else None

    @pytest.hookimpl(wrapper=True)
    def pytest_ondol_device_fault(self, item: pytest.Item) -> Generator[None, str | None, str | None]:
        """A runtime that knows its device's health is asked after each of its tasks."""
        answer = yield
        if answer is not None or not isinstance(item, RuntimeItem):
            return answer
        stash = item.config.stash
        if _LAST_FAULT in stash:
            last = stash[_LAST_FAULT]
            del stash[_LAST_FAULT]
            return last
        return _ask(stash.get(_OPEN_RUNTIMES, {}).get(item.ondol_runtime))


def _ask(runtime: Any) -> str | None:
    """A runtime's own opinion of its device, when it has one."""
    fault = getattr(runtime, "fault", None)
    return fault() if fault is not None else None
