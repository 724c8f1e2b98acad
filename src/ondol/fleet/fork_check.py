"""May this process be forked into workers? Only if a child could do everything that a new process could.

A fork takes one thread along and no device context. So the evidence is: Python threads, native threads that nobody
would make again (`threads`), open device files, an initialised device runtime; and last a fork that is tried: does a
device work in it, does a parallel region end? All workers are forks of the same process in the same state, so one trial
speaks for all. It is made in a child that may hang; in a worker it would leave threads and a device context that plain
pytest does not have there.
"""

import ctypes
import glob
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from ondol.errors import OndolError
from ondol.fleet import known_leftovers, threads
from ondol.host import bounded

#: Who touched a device while tests were collected, if that was noticed: `tests/conftest.py:12 (…)`.
TOUCHED = pytest.StashKey[str]()
WATCH = pytest.StashKey["Watch"]()
#: Of torch.
DEVICE_MODULES = ("cuda", "xpu", "npu")
#: Seconds for a trial. A device that is opened for the first time takes one or two.
PATIENCE = 30.0
DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel")
#: What only passes a thread on; who asked for it stands further up the stack.
_PASSED_ON = ("threading.py", f"{os.sep}concurrent{os.sep}futures{os.sep}", f"{os.sep}multiprocessing{os.sep}")
_INSTEAD = "in a fixture or a test instead, it would let workers start in milliseconds"


class Watch:
    """While tests are collected: which line starts a Python thread, which file a native thread or opens a device."""

    def __init__(self, root: str) -> None:
        #: Thread or device file → the file that was collected when it appeared.
        self.since: dict[str, str] = {}
        self._real = real = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            stack = traceback.extract_stack(sys._getframe(1))
            thread.__dict__["ondol_started"] = threads.culprit(stack, root, _PASSED_ON)
            real(thread)

        threading.Thread.start = self._ours = start  # type: ignore[assignment, method-assign]

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.Session):
            self._look("a conftest file or a plugin")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._look(report.nodeid.split("::")[0])

    def pytest_collection_finish(self) -> None:
        if threading.Thread.start is self._ours:
            threading.Thread.start = self._real  # type: ignore[method-assign]

    def _look(self, suspect: str) -> None:
        for one in (*os.listdir("/proc/self/task"), *open_devices()):
            self.since.setdefault(one, suspect)


def watch(config: pytest.Config) -> None:
    """Before conftests are loaded: who starts threads from now on is noted."""
    config.stash[WATCH] = Watch(str(config.rootpath))
    config.pluginmanager.register(config.stash[WATCH], "ondol-threads")


def why_not_fork(config: pytest.Config, env: dict[str, str]) -> str | None:
    """As `--start` wishes; `env` selects the device that a fork is tried with."""
    wish = config.getoption("ondol_start")
    if wish != "auto":
        return "asked for" if wish == "spawn" else None
    watching = config.stash.get(WATCH, None)
    return reason(config.stash.get(TOUCHED, ""), watching.since if watching else {}) or trial_fork(env)


def reason(toucher: str = "", since: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """None when clean; otherwise the first reason, in words, with the line or file to blame where it is known."""
    pooled = known_leftovers.pooled_threads() | {threading.main_thread().ident}
    strangers = [t for t in threading.enumerate() if t.ident not in pooled and not known_leftovers.of_thread(t.name)]
    if strangers:
        told = ", ".join(map(_describe, strangers[:4]))
        return f"Python threads are running after collection: {told}; {_INSTEAD}"
    if found := device_in_use():  # before its driver's threads: they are there because of it
        toucher = toucher or next((since[one] for one in open_devices() if one in since), "")
        return f"{found}; touched by {toucher}; {_INSTEAD}" if toucher else found
    if native := threads.lost():
        file = next((since[str(one.tid)] for one in native if str(one.tid) in since), "")
        told = threads.described(native) + (f", since the import of {file}" if file else "")
        return f"native threads are running after collection: {told}; {_INSTEAD}"
    return None


def device_in_use() -> str | None:
    if opened := open_devices():
        return f"a device is open after collection: {opened[0]}"
    return _runtime_initialised()


def _describe(thread: threading.Thread) -> str:
    """With the line that started it, or else its module, as far as the thread tells: a plugin's thread has any name."""
    if started := getattr(thread, "ondol_started", ""):
        return f"{thread.name}, started at {started}"
    module = getattr(getattr(thread, "_target", None), "__module__", "") or type(thread).__module__
    return thread.name if module == "threading" else f"{thread.name} ({module})"


def device_nodes() -> list[str]:
    """The device files of this machine: without any there is nothing to ask."""
    return [path for prefix in DEVICE_FILES for path in glob.glob(prefix + "*")]


def open_devices() -> list[str]:
    """The device files that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith(DEVICE_FILES):
            found.append(target)
    return found


def _runtime_initialised() -> str | None:
    """Runtimes that refuse to work in a fork say so themselves, when they have been imported."""
    torch = sys.modules.get("torch")
    for name in DEVICE_MODULES:
        module = getattr(torch, name, None)
        is_initialised = getattr(module, "is_initialized", None)
        try:
            if is_initialised is not None and is_initialised():
                return f"torch.{name} was initialised during collection"
        except Exception:
            continue
    return None


def trial_fork(env: dict[str, str], patience: float = PATIENCE) -> str | None:
    """None when a fork works, or where nothing is loaded that could fail in one; `env` selects the device."""
    torch: Any = sys.modules.get("torch")
    runtimes = threads.libraries(threads.GNU, *threads.OTHERS)
    if torch is None and not runtimes:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python ≥ 3.12 warns about threads; those that matter were looked at
        try:
            failure: str = bounded.call(lambda _: _try(torch, runtimes, env), patience)
        except OndolError as error:
            failure = str(error)
    return f"a trial fork failed: {failure}" if failure else None


def _try(torch: Any, runtimes: list[str], env: dict[str, str]) -> str:
    """In the child. Empty when all went well."""
    os.environ.update(env)
    try:
        for path in runtimes:
            _parallel_region(path)
        for name in DEVICE_MODULES:
            module = getattr(torch, name, None)
            if module is not None and module.is_available():
                str(torch.ones(1, device=name))  # made there, and brought here
                _ask_triton()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def _parallel_region(path: str) -> None:
    """Every thread of the team frees nothing: no Python runs there."""
    region = getattr(threads.loaded(path), "GOMP_parallel", None)
    if region is not None:
        region(ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p), None, 0, 0)


def _ask_triton() -> None:
    """Its driver, which loads and launches kernels. Compiling one would take longer than all the rest."""
    driver: Any = sys.modules.get("triton.runtime.driver")
    if driver is not None:
        driver.driver.active.get_current_target()
