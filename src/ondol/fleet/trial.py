"""A fork that is tried before there are workers: does a device work in it, does a parallel region end?

All workers are forks of the same process in the same state, so one trial speaks for all. It is made in a child that may
hang; in a worker it would leave threads and a device context that plain pytest does not have there.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import Any

from ondol.errors import OndolError
from ondol.fleet import threads
from ondol.host import bounded

#: Seconds. A device that is opened for the first time takes one or two.
PATIENCE = 30.0
_DEVICES = ("cuda", "xpu", "npu")


def why_not(env: dict[str, str], patience: float = PATIENCE) -> str | None:
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
        for name in _DEVICES:
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
