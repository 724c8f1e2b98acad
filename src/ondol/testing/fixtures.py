"""Fixtures and collectors that exist only in runs of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ondol.fleet.worker.worker import DEVICE_KEY


class DeviceName(str):
    """The device as frameworks spell it inside this worker (`cuda:0`), with what it really is beside it."""

    #: Names of all devices that this item holds.
    names: tuple[str, ...]
    kind: str
    #: What the visible-devices variable holds.
    visible: str

    @classmethod
    def of(cls, devices: list[dict[str, Any]]) -> DeviceName:
        kind = devices[0]["kind"] if devices else "cpu"
        # A worker sees only its own devices, so its first one is number 0 whatever the machine calls it.
        word = {"rocm": "cuda", "ascend": "npu"}.get(kind, kind)
        made = cls(word if kind in {"cpu", "sim"} else f"{word}:0")
        made.names = tuple(d["name"] for d in devices)
        made.kind = kind
        made.visible = ",".join(d["visible"] for d in devices)
        return made


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> DeviceName:
    """The device of this worker."""
    return DeviceName.of(request.config.stash[DEVICE_KEY].devices)


def register(config: pytest.Config) -> None:
    """Unless a plugin of the suite has a `device` of its own: of two plugins the later one wins, and that is ours."""
    plugins = [plugin for plugin in config.pluginmanager.get_plugins() if isinstance(plugin, ModuleType)]
    theirs = [value for plugin in plugins if not _is_conftest(plugin) for value in vars(plugin).values()]
    if not any(isinstance(value, type(device)) and value.name == device.name for value in theirs):
        config.pluginmanager.register(sys.modules[__name__], "ondol-fixtures")


def _is_conftest(plugin: ModuleType) -> bool:
    """What it defines is for its folder, and wins there over any plugin's."""
    return os.path.basename(plugin.__file__ or "") == "conftest.py"


class FatalFile(pytest.File):
    """A file that crashed or hung when it was imported; collecting it is an error instead of an end."""

    reason = ""

    def collect(self) -> list[pytest.Item]:
        raise self.CollectError(f"this file ended the process that collected it: {self.reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file that killed an earlier collection is reported instead of imported, by everybody who collects."""
    for fault in parent.config.getoption("ondol_collection_fault"):
        path, _, reason = fault.partition("=")
        if os.path.realpath(module_path) == os.path.realpath(os.path.join(parent.config.rootpath, path)):
            file = FatalFile.from_parent(parent, path=module_path)
            file.reason = reason
            return file
    return None
