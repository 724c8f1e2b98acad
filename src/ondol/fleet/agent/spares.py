"""Spawned workers that have collected and belong to no slot yet: who needs a worker takes one and waits for no import.

Before a run they start beside the controller's own collection; during it one stands by, where there is memory for it.
One that opened a device while it collected has left by itself: it would hold the device for as long as it waits.
"""

import os
from collections.abc import Callable, Iterable

from ondol.fleet.agent.keeper import Keeper
from ondol.host import killing, proctree


def fits(worker: int, free: int) -> bool:
    """One more worker of this size may wait, and as much again stays free for what tests take."""
    return free >= 2 * worker


class Spares:
    """What an agent has in hand; `start` makes one. None where workers are forked and cost nothing."""

    def __init__(self, start: Callable[[], Keeper] | None) -> None:
        self._start = start
        self.waiting: list[Keeper] = []
        #: Killed, and not gone yet: nobody may take one of them.
        self._ended: list[Keeper] = []
        #: None is wanted any more, or one died while it collected or did not fit: another one would, too.
        self._over = start is None

    @property
    def all(self) -> list[Keeper]:
        return self.waiting + self._ended

    def warm(self, count: int) -> None:
        """Workers that the run will need in any case."""
        if self._start is not None:
            self.waiting += [self._start() for _ in range(count)]

    def stand_by(self, workers: Iterable[Keeper]) -> None:
        """There is more to run: have one in hand."""
        if self._start is None or self._over or self.waiting:
            return
        largest = max((proctree.resident(keeper.pid) for keeper in workers), default=0)
        self._over = not fits(largest, proctree.free_memory())
        self.warm(0 if self._over else 1)

    def trim(self) -> None:
        """Items have ended: whoever needed one at the start has taken it."""
        self._end(self.waiting[1:])

    def take(self) -> Keeper | None:
        """The one that is ready, or will be first."""
        self.waiting.sort(key=lambda keeper: keeper.state != "waiting")
        return self.waiting.pop(0) if self.waiting else None

    def collected(self, keeper: Keeper) -> None:
        """It stays while it fits, unless somebody waits for it already."""
        if keeper in self.waiting:
            keeper.state, keeper.deadline = "waiting", None
            if not fits(proctree.resident(keeper.pid) // 2, proctree.free_memory()):
                self.drop()

    def gone(self, keeper: Keeper) -> bool:
        """It has died, and nobody misses it; False for one that is no spare."""
        self._over |= keeper in self.waiting and keeper.state == "starting"
        for line in (self.waiting, self._ended):
            if keeper in line:
                line.remove(keeper)
                return True
        return False

    def drop(self) -> None:
        """None is needed any more."""
        self._over = True
        self._end(self.waiting)

    def _end(self, keepers: list[Keeper]) -> None:
        """They have run nothing, and nobody waits for their end."""
        self.waiting = [keeper for keeper in self.waiting if keeper not in keepers]
        self._ended += keepers
        for keeper in keepers:
            killing.kill_all({keeper.pid, *proctree.descendants(keeper.pid)}, os.getpid())
