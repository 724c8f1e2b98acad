"""May this process be forked into workers? Only if a child could do everything that a new process could.

The OpenBLAS pool that torch starts survives a fork; Python threads and device contexts do not. So the evidence is:
Python threads, open device files, an initialised device runtime. The number of kernel threads alone says nothing.
"""

from __future__ import annotations

import glob
import os
import sys
import threading

import pytest

#: Who touched a device while tests were collected, if that was noticed: `tests/conftest.py:12 (…)`.
TOUCHED = pytest.StashKey[str]()
DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel")


def why_not_fork(toucher: str = "") -> str | None:
    """None when clean; otherwise the first reason, in words, with the line that is to blame where it is known."""
    reason = _reason()
    if reason is None or not toucher:
        return reason
    return f"{reason}; touched by {toucher}: in a fixture instead, it would let workers start in milliseconds"


def _reason() -> str | None:
    if sys.platform != "linux":
        return f"fork is not safe on {sys.platform}"
    threads = [_describe(t) for t in threading.enumerate() if t is not threading.main_thread()]
    if threads:
        return f"Python threads are running after collection: {', '.join(threads[:4])}"
    if opened := open_devices():
        return f"a device is open after collection: {opened[0]}"
    return _runtime_initialised()


def _describe(thread: threading.Thread) -> str:
    """With the module that started it, as far as the thread tells: a plugin's thread has any name."""
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
    for name in ("cuda", "xpu", "npu"):
        module = getattr(torch, name, None)
        is_initialised = getattr(module, "is_initialized", None)
        try:
            if is_initialised is not None and is_initialised():
                return f"torch.{name} was initialised during collection"
        except Exception:
            continue
    return None
