"""Every question but `is_initialized` opens the device, as the real ones do."""

import os

_touched_by = None


class _CudaDeviceProperties:
    name = "Fake H1"
    major, minor = 9, 0
    total_memory = 1 << 34
    multi_processor_count = 7

    def __repr__(self):
        return "_CudaDeviceProperties(name='Fake H1', major=9, minor=0)"


def _touch():
    global _touched_by  # noqa: PLW0603
    if _touched_by not in (None, os.getpid()):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
    if _touched_by is None:
        _touched_by = os.getpid()
        with open(os.environ["TOUCHED"], "a") as file:
            file.write(f"{os.getpid()}\n")


def is_initialized():
    return _touched_by is not None


def _lazy_init():
    _touch()


def is_available():
    _touch()
    return True


def device_count():
    _touch()
    return 1


def current_device():
    _touch()
    return 0


def get_device_name(device=None):
    return get_device_properties(device).name


def get_device_capability(device=None):
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_device_properties(device=None):
    _touch()
    if device not in (None, 0):
        raise AssertionError("Invalid device id")
    return _CudaDeviceProperties()


def mem_get_info(device=None):
    _touch()
    return os.getpid(), 1 << 34
