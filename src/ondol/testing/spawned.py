"""The inside of a worker that could not be forked: a pytest of its own that collects only what it is sent."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ondol.fleet import pytest_inside
from ondol.fleet.launch import WORKER_ENV
from ondol.fleet.wire import Channel
from ondol.fleet.worker import Place, Worker, send_capture_files


def is_spawned() -> bool:
    return WORKER_ENV in os.environ


class Collected:
    """Items by node id; a file is collected when its first item is asked for."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items: dict[str, pytest.Item] = {}
        self._files: set[str] = set()

    def __call__(self, _index: int, nodeid: str) -> pytest.Item:
        file = nodeid.split("::")[0]
        if nodeid not in self._items and file not in self._files:
            self._files.add(file)
            self._collect(file)
        if nodeid not in self._items:
            near = sorted(i for i in self._items if i.startswith(file + "::"))
            raise LookupError(
                f"{nodeid} was collected by the controller and not by this worker, which found {len(near)} items in {file}"
                + (f", the first being {near[0]}" if near else "")
            )
        return self._items[nodeid]

    def _collect(self, file: str) -> None:
        session = self._session
        found = session.perform_collect([str(session.config.rootpath / file)])
        for item in found:
            if isinstance(item, pytest.Item):
                self._items[item.nodeid] = item
        session.items = list(self._items.values())


class SpawnedWorker:
    """Takes the place of collection and of the test loop."""

    def __init__(self, config: pytest.Config, channel: Channel, place: Place) -> None:
        self._config = config
        self._channel = channel
        self._place = place

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        session.items = []
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        send_capture_files(self._channel, pytest_inside.own_capture(self._config))
        Worker(session, Collected(session), self._channel, self._place).serve()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Any:
        pytest_inside.silence_terminal(session.config)
        pytest_inside.own_base_temp(session.config, pytest_inside.base_temp(session.config), self._place.name)
