"""Every question but `is_initialized` opens the device, as the real ones do."""

import os

_touched_by = None


CAPABILITIES = {"Fake H1": (9, 0), "Fake A1": (8, 0)}


class _CudaDeviceProperties:
    total_memory = 1 << 34
    multi_processor_count = 7

    def __init__(self, name):
        self.name = name
        self.major, self.minor = CAPABILITIES[name]

    def __repr__(self):
        return f"_CudaDeviceProperties(name={self.name!r}, major={self.major}, minor={self.minor})"


def _seen():
    """The names of the devices that this process sees: the fastest first, unless told to follow the PCI bus."""
    names = os.environ.get("FAKE_GPUS", "Fake H1").split(",")
    if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        names.sort(key=lambda name: CAPABILITIES[name], reverse=True)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names if visible is None else [names[int(number)] for number in visible.split(",")]


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
    return len(_seen())


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
    names = _seen()
    if (device or 0) >= len(names):
        raise AssertionError("Invalid device id")
    return _CudaDeviceProperties(names[device or 0])


def mem_get_info(device=None):
    _touch()
    return os.getpid(), 1 << 34
