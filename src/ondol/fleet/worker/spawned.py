"""The inside of a worker that could not be forked: a pytest of its own that collects only what it is sent."""

import faulthandler
import json
import mmap
import os
import select
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet import devices, fork_check, pytest_inside, starts, wire
from ondol.fleet.board import SIZE, Board, Given
from ondol.fleet.devices import Fleet
from ondol.fleet.messages import Listed, MoveIn, Spare
from ondol.fleet.starts import WORKER_ENV, AsWorker, Place, Session, UnderFront
from ondol.fleet.worker.worker import Worker, move_in, send_capture_files, settle_in
from ondol.host import proctree
from ondol.host.killing import DUMP_SIGNAL


def obey_the_front() -> bool:
    """Under `ondol test`: end when it ends, and show our stacks when it asks. Tells whether there is one."""
    front = starts.take(UnderFront)
    if front is None:
        return False
    proctree.die_with_parent(front.pid, signal.SIGTERM)
    os.set_inheritable(front.dump, False)
    faulthandler.register(DUMP_SIGNAL, file=front.dump, all_threads=True, chain=False)
    return True


def to_join(session: pytest.Session, fleet: Fleet | None = None) -> Session:
    """This session as a spawned worker must know it; of a `fleet`, whose devices some may hold while they wait."""
    config, params = session.config, session.config.invocation_params
    # An id may lead to no file, or to two items: it lies outside, a conftest has changed it, or made a copy of an item.
    known = {item.nodeid: config.rootpath / item.nodeid.split("::")[0] == item.path for item in session.items}
    outside = len(known) < len(session.items) or not all(known.values())
    arguments = [str(argument) for argument in params.args]
    homes = fleet.homes if fleet and fork_check.device_in_use() else []
    return Session(arguments, str(params.dir), str(pytest_inside.base_temp(config) or ""), outside, homes)


def is_spawned() -> bool:
    return WORKER_ENV in os.environ


def collects_from_facts() -> bool:
    """It will collect before it is known where it lives, and on which device."""
    if not is_spawned():
        return False
    place = json.loads(os.environ[WORKER_ENV])["place"]
    return not place["slot"] and not place["env"]


def adopt() -> tuple[Given, Session] | None:
    """In a spawned worker, early: what it was given, and the session that it joins. None everywhere else."""
    start = starts.take(AsWorker)
    if start is None:
        return None
    os.setpgid(0, 0)
    proctree.die_with_parent(start.parent)
    token, board = start.token.encode(), Board(mmap.mmap(start.board, SIZE))
    os.close(start.board)
    channel = wire.Channel(socket.socket(fileno=wire.move_up(start.channel)), token)
    lane = wire.AheadPipe(token, wire.move_up(start.lane))
    given = Given(start.place, channel, lane, board, wire.move_up(start.dump))
    settle_in(given.dump)
    return given, start.session


class ItemFinder:
    """Items by node id; a file is collected when its first item is asked for, or all of them at once, as named."""

    def __init__(self, session: pytest.Session, as_named: bool) -> None:
        self._session = session
        self._as_named = as_named
        self._items: dict[str, pytest.Item] = {}
        self._files: set[str] = set()

    def __call__(self, index: int, nodeid: str) -> pytest.Item:
        file = nodeid.split("::")[0]
        if self._as_named:
            # Two files may have the same id, one here and one outside of the root: then the order tells.
            if not self._items:
                self.collect()
            if index < len(self._session.items) and self._session.items[index].nodeid == nodeid:
                return self._session.items[index]
            self._files.add(file)
        if nodeid not in self._items and file not in self._files:
            self._files.add(file)
            self.collect(file)
        if nodeid not in self._items:
            near = sorted(i for i in self._items if i.startswith(file + "::"))
            raise LookupError(
                f"{nodeid} was collected by the controller, not by this worker, which found {len(near)} items in {file}"
                + (f", the first being {near[0]}" if near else "")
            )
        return self._items[nodeid]

    def collect(self, file: str | None = None) -> None:
        """This file, or everything, as named on the command line."""
        session = self._session
        with pytest_inside.unheard(session.config):
            found = session.perform_collect(file and [str(session.config.rootpath / file)])
        self._items.update({item.nodeid: item for item in found if isinstance(item, pytest.Item)})
        if file:
            session.items = list(self._items.values())


class SpawnedWorker:
    """Takes the place of collection and of the test loop."""

    def __init__(self, config: pytest.Config, given: Given, joined: Session) -> None:
        self._config = config
        self._given, self._as_named = given, joined.as_named or not given.place.slot
        # A spare is told later where the base is, and must not clear the controller's meanwhile.
        base = joined.base if given.place.slot else given.place.tmpdir
        pytest_inside.stay_out_of_the_way(config, os.path.join(base, given.place.name) if base else "")
        self._directories: dict[Path, Any] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(self, path: Path) -> Generator[None, Any, Any]:
        """The same directory twice is the same node: fixtures of its conftest are registered with that node once."""
        return self._directories.setdefault(path, (yield))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        session.items = []
        return True

    def pytest_collection_finish(self) -> None:
        """A module may choose a device when it is imported (`os.environ["CUDA_VISIBLE_DEVICES"] = "0"`)."""
        os.environ.update(self._given.place.env)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        given = self._given
        move_in(given.place)
        send_capture_files(given.channel, pytest_inside.own_capture(self._config))
        lookup = ItemFinder(session, self._as_named or given.place.collects)
        if not given.place.slot:
            given.place = self._find_a_place(lookup)
        elif given.place.collects:
            lookup.collect()
            ids = [item.nodeid for item in session.items]
            skipped = [item.nodeid for item in pytest_inside.skipped_by_condition(session.items)]
            given.channel.send(Listed(given.place.slot, ids, skipped))
        Worker(session, lookup, given, forked=False).serve()
        return True

    def _find_a_place(self, lookup: ItemFinder) -> Place:
        """Collect, and wait until a worker is needed. Never returns if none is, or with a device that is not for it."""
        lookup.collect()
        given = self._given
        if fork_check.device_in_use() is None or self._may_hold_its_device():
            given.channel.send(Spare())
            message = given.channel.receive()
            if isinstance(message, MoveIn):
                place = Place(**message.place)
                settle_in(given.dump)
                move_in(place)
                base = Path(message.base) if message.base else None
                pytest_inside.own_base_temp(self._config, base, place.name)
                if facts := self._config.pluginmanager.get_plugin("ondol-device-facts"):
                    facts.real_again()
                return place
        pytest_inside.run_exit_handlers()
        os._exit(0)

    def _may_hold_its_device(self) -> bool:
        """The one that it was started for, if somebody waits for it already, or tests have memory enough beside it."""
        given = self._given
        waited_for = bool(select.select([given.channel], [], [], 0)[0])
        return bool(given.place.env) and (waited_for or devices.half_is_free(given.place.env))

    def pytest_plugin_registered(self, plugin: object, plugin_name: str) -> None:
        """At once, whoever it is: a terminal reporter greets when the session starts."""
        if plugin_name == "terminalreporter" and not isinstance(plugin, pytest_inside.QuietReporter):
            pytest_inside.silence_terminal(self._config)

    def pytest_sessionstart(self) -> None:
        """pytest's own plugin has turned the stacks of a crash to standard error."""
        faulthandler.enable(file=self._given.dump, all_threads=True)
        pytest_inside.let_benchmarks_measure(self._config)
