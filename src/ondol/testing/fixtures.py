"""Fixtures and collectors that exist only in runs of ours."""

from __future__ import annotations

from typing import Any

import pytest

from ondol.fleet.worker import DEVICE_KEY


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


class FatalFile(pytest.File):
    """A file that crashed or hung when it was imported; collecting it is an error instead of an end."""

    def __init__(self, *, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def collect(self) -> list[pytest.Item]:
        raise self.CollectError(f"this file ended the process that collected it: {self.reason}")
