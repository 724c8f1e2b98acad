"""From the text of a failure to its cause: the item's own or the device's. Pure, and data first.

Only errors that leave a device context unusable are listed: an assertion must never be mistaken for one, because the
mistake would be retried away. What a cache's faults look like is the other wing's knowledge (`caches.Caches`).
"""

from __future__ import annotations

import re

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
    "xpu": (r"UR_RESULT_ERROR_DEVICE_LOST", r"PI_ERROR_DEVICE_LOST", r"ZE_RESULT_ERROR_DEVICE_LOST"),
}

_DEVICE = re.compile("|".join(pattern for patterns in DEVICE_FAULTS.values() for pattern in patterns))


def is_device_fault(text: str) -> bool:
    """Whether the text of a failed or errored attempt shows that its device context was at fault."""
    return bool(_DEVICE.search(text))
