"""Is this process's device context still usable? Asked through the driver, only where a context exists already.

A sticky error (an illegal address, a device assert) makes every later call of the process fail, so one bad kernel turns
into hundreds of red tests. The check never creates a context and never loads a driver: it looks for what is there.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

_driver: list[Any] = []
_looked_at: list[object] = [None]


def _loaded_driver(libraries: object) -> Any:
    """libcuda, if somebody in this process loaded it; `libraries` changes whenever anything is loaded."""
    if not _driver:
        if libraries is not None and libraries == _looked_at[0]:
            return None
        _looked_at[0] = libraries
        try:
            _driver.append(ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
        except OSError:
            return None
    return _driver[0]


def cuda_fault(libraries: object = None) -> str | None:
    """None when there is no context or it is healthy; otherwise what is wrong with it."""
    driver = _loaded_driver(libraries)
    if driver is None:
        return None
    context = ctypes.c_void_p()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) != 0:
        return None
    if context.value:
        return _say(driver, driver.cuCtxSynchronize())
    return _primary_fault(driver)


def _primary_fault(driver: Any) -> str | None:
    """No context is current on this thread: look at the primary one, which the runtimes share."""
    flags, active = ctypes.c_uint(), ctypes.c_int()
    if driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) != 0 or not active.value:
        return None
    context = ctypes.c_void_p()
    code = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    if code != 0:
        return _say(driver, code)
    driver.cuCtxPushCurrent_v2(context)
    code = driver.cuCtxSynchronize()
    driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    driver.cuDevicePrimaryCtxRelease_v2(0)
    return _say(driver, code)


def _say(driver: Any, code: int) -> str | None:
    return f"{_name(driver, code)}: the context is unusable" if code else None


def _name(driver: Any, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    return f"CUDA error {code} ({(text.value or b'see cuda.h').decode()})"


def probe_cuda() -> str | None:
    """A health check in a process of its own: make a context, touch memory twice, let go. None when healthy."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA driver: {error}"
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    size = 1 << 20
    back = (ctypes.c_ubyte * 16)()
    steps: tuple[Callable[[], Any], ...] = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        lambda: driver.cuCtxPushCurrent_v2(context),
        lambda: driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)),
        lambda: driver.cuMemsetD8_v2(memory, ctypes.c_ubyte(7), ctypes.c_size_t(size)),
        driver.cuCtxSynchronize,
        lambda: driver.cuMemcpyDtoH_v2(back, memory, ctypes.c_size_t(16)),
        lambda: driver.cuMemFree_v2(memory),
    )
    for step in steps:
        code = step()
        if code != 0:
            return _name(driver, code)
    return None if list(back) == [7] * 16 else "device memory does not hold what was written to it"


if __name__ == "__main__":
    import sys

    fault = probe_cuda()
    if fault:
        print(fault)
    sys.exit(1 if fault else 0)
