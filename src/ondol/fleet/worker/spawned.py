"""The inside of a worker that could not be forked: a pytest of its own that collects only what it is sent."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet import pytest_inside, wire
from ondol.fleet.options import WORKER_ENV
from ondol.fleet.starts import AsWorker, Place, UnderFront
from ondol.fleet.wire import Channel
from ondol.fleet.worker.worker import Worker, send_capture_files, settle_in
from ondol.host import proctree
from ondol.host.killing import DUMP_SIGNAL


def obey_the_front() -> None:
    """Under `ondol test`: end when it ends, and show our stacks when it asks."""
    front = UnderFront.take()
    if front is None:
        return
    proctree.die_with_parent(front.pid, signal.SIGTERM)
    os.set_inheritable(front.dump, False)
    faulthandler.register(DUMP_SIGNAL, file=front.dump, all_threads=True, chain=False)


def is_spawned() -> bool:
    return WORKER_ENV in os.environ


def adopt() -> tuple[Channel, Place, mmap.mmap] | None:
    """In a spawned worker, early: take the channel out of the environment. None everywhere else."""
    start = AsWorker.take()
    if start is None:
        return None
    os.setpgid(0, 0)
    proctree.die_with_parent(start.parent)
    dump = wire.move_up(start.dump)
    channel = Channel(socket.socket(fileno=wire.move_up(start.channel)), bytes.fromhex(start.token))
    settle_in(start.place, dump)
    phase = mmap.mmap(start.phase, mmap.PAGESIZE)
    os.close(start.phase)
    return channel, start.place, phase


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
                f"{nodeid} was collected by the controller, not by this worker, which found {len(near)} items in {file}"
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

    def __init__(self, config: pytest.Config, channel: Channel, place: Place, phase: mmap.mmap) -> None:
        self._config = config
        self._channel = channel
        self._place = place
        self._phase = phase
        self._directories: dict[Path, Any] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(self, path: Path) -> Generator[None, Any, Any]:
        """The same directory twice is the same node: fixtures of its conftest are registered with that node once."""
        return self._directories.setdefault(path, (yield))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        session.items = []
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        send_capture_files(self._channel, pytest_inside.own_capture(self._config))
        Worker(session, Collected(session), self._channel, self._place, self._phase).serve()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Any:
        pytest_inside.silence_terminal(session.config)
        pytest_inside.own_base_temp(session.config, pytest_inside.base_temp(session.config), self._place.name)
