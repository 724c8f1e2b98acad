"""Modules loaded from PTX through the driver alone; the files in its cache tell which ones it compiled."""

import ctypes
import json
import os

CODE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel{n}(.param .u64 out) {{
.reg .b32 %r<3>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x; add.u32 %r2, %r1, {n};
st.global.u32 [%rd2], %r2; ret; }}
"""
cache = os.environ["CUDA_CACHE_PATH"]
driver = ctypes.CDLL("libcuda.so.1")


def check(status: int) -> None:
    if status:
        raise SystemExit(f"CUDA error {status}")


def files() -> set[str]:
    return {os.path.join(place, name) for place, _, names in os.walk(cache) for name in names if name != "index"}


check(driver.cuInit(0))
device, context = ctypes.c_int(), ctypes.c_void_p()
check(driver.cuDeviceGet(ctypes.byref(device), 0))
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(driver.cuCtxSetCurrent(context))
before = files()
loaded = []
for number in (1, 2, 3):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadDataEx(ctypes.byref(module), CODE.format(n=number).encode(), 0, None, None))
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, f"kernel{number}".encode()))
    loaded.append(number)
print(json.dumps({"made": len(files() - before), "reused": len(before), "answer": loaded}))
