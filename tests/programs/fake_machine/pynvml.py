"""The NVML of a machine whose GPUs are named in $FAKE_GPUS, in the order of its PCI bus."""

import os


class _Memory:
    total = 16 << 30
    free = int(os.environ.get("FAKE_FREE", str(15 << 30)))


def nvmlInit():
    pass


nvmlShutdown = nvmlInit  # noqa: N816


def nvmlDeviceGetCount():
    return len(os.environ["FAKE_GPUS"].split(","))


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetName(handle):
    return os.environ["FAKE_GPUS"].split(",")[handle]


def nvmlDeviceGetMemoryInfo(_handle):
    return _Memory


def nvmlDeviceGetUUID(handle):
    return f"GPU-{handle}"
