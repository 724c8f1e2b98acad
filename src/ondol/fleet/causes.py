"""From the text of a failure to its cause: the item's own, the device's, or a cache's. Pure, and data first.

Only errors that leave a device context unusable, or that belong to a shared cache, are listed: an assertion must never
be mistaken for either, because the mistake would be retried away.
"""

from __future__ import annotations

import re

from ondol.fleet.verdict import Cause

#: Vendor → what its runtimes say when the context (not the item's arithmetic) is at fault.
DEVICE_FAULTS: dict[str, tuple[str, ...]] = {
    "cuda": (
        r"CUDA error: (an illegal memory access|misaligned address|unspecified launch failure|device-side assert)",
        r"CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS|ASSERT|HARDWARE_STACK_ERROR|ECC_UNCORRECTABLE)",
        r"CUDA error: (uncorrectable ECC|CUDA-capable device\(s\) is/are busy|no CUDA-capable device|unknown error)",
        r"cudaErrorDevicesUnavailable",
    ),
    "rocm": (
        r"HIP error: (an illegal memory access|unspecified launch failure)",
        r"HSA_STATUS_ERROR_(EXCEPTION|OUT_OF_REGISTERS)",
    ),
    "ascend": (r"\b(?:error code|ret|code)\D{0,12}(207001|507000|507015|507018|507046|507899)\b",),
    "any": (r"RuntimeOpenFailed: ",),
    "xpu": (r"UR_RESULT_ERROR_DEVICE_LOST", r"PI_ERROR_DEVICE_LOST", r"ZE_RESULT_ERROR_DEVICE_LOST"),
}

CACHE_FAULTS: tuple[str, ...] = (
    r"PermissionError: .*tmp\.pid_\d+",
    r"(?:Permission denied|Stale file handle|Read-only file system).*(?:\.triton|/triton|torchinductor|tilelang)",
    r"OSError: \[Errno 116\] Stale file handle",
    r"invalid ELF header.*(?:\.triton|/triton|torchinductor|tilelang)",
)

_DEVICE = re.compile("|".join(pattern for patterns in DEVICE_FAULTS.values() for pattern in patterns))
_CACHE = re.compile("|".join(CACHE_FAULTS))


def cause_of(text: str) -> Cause:
    """Classify the text of a failed or errored attempt."""
    if _DEVICE.search(text):
        return Cause.DEVICE
    if _CACHE.search(text):
        return Cause.CACHE
    return Cause.FAILED
