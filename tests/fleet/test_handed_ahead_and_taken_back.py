"""Worker and agent read the same lane at the same moment: each item stays with the one who took it.

An agent that only counted what it got back believed that its worker had another item than it had. It took the worker's
next word for a forgery, and the run waited for an item that had passed long ago.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from ondol.fleet import wire
from ondol.fleet.agent.keeper import Keeper
from ondol.fleet.agent.launch import Started
from ondol.fleet.board import Board
from ondol.fleet.messages import Message, RunItem
from ondol.fleet.starts import Limits, Place

TOKEN = b"w" * 16
ITEMS = [RunItem("cpu0", n, 1, n, f"t.py::{n}", devices=[]) for n in range(6)]


class ReadByTheWorkerToo(wire.AheadPipe):
    """After the agent's first item, the worker takes one."""

    workers: bytes = b""

    def _read(self) -> bytes:
        mine = super()._read()
        self.workers = self.workers or super()._read()
        return mine


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    ours, theirs = wire.pair()
    lane = ReadByTheWorkerToo.open(TOKEN)
    started = Started(os.getpid(), wire.Channel(ours, TOKEN), os.memfd_create("dump"), Board(), lane)
    keeper = Keeper(started, Place("cpu0-1", "cpu0", {}, "", [], "off"), Limits(), 0.0)
    yield keeper
    keeper.close()
    theirs.close()


def test_what_the_worker_took_between_two_of_the_agents_is_the_workers(keeper: Keeper) -> None:
    assert all(keeper.put_ahead(item) for item in ITEMS)
    back = keeper.take_back()
    assert isinstance(keeper._lane, ReadByTheWorkerToo)
    assert keeper._lane.workers == wire.encode(TOKEN, ITEMS[1])
    assert [item.item for item in back] == [0, 2, 3, 4, 5]
    assert [item.item for item in keeper.ahead] == [1], "this one it begins next"


def test_all_of_it_comes_back_from_a_worker_that_begins_nothing(keeper: Keeper) -> None:
    assert all(keeper.put_ahead(item) for item in ITEMS)
    assert [item.item for item in keeper.take_back(every=True)] == [0, 1, 2, 3, 4, 5]
    assert not keeper.ahead


def test_a_real_race_leaves_every_item_with_exactly_one(keeper: Keeper) -> None:
    """Two threads on the two ends of a real pipe, many times."""
    worker = wire.AheadPipe(TOKEN, os.dup(keeper._lane.reading))
    keeper._lane.__class__ = wire.AheadPipe
    for _ in range(300):
        assert all(keeper.put_ahead(item) for item in ITEMS)
        begin = threading.Barrier(2)
        taken: list[Message | None] = []

        def take(begin: threading.Barrier = begin, taken: list[Message | None] = taken) -> None:
            begin.wait()
            taken.append(worker.take())

        beside = threading.Thread(target=take)
        beside.start()
        begin.wait()
        back = keeper.take_back()
        beside.join()
        assert list(keeper.ahead) == [message for message in taken if message is not None]
        assert sorted(item.item for item in [*back, *keeper.ahead]) == [0, 1, 2, 3, 4, 5]
        keeper.take_back(every=True)
    os.close(worker.reading)
