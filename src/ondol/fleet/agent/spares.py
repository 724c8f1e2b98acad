"""Spawned workers that have collected and belong to no slot yet: who needs a worker takes one and waits for no import.

Before a run they start beside the controller's own collection; during it one stands by, where there is memory for it.
Where the suite takes its device while it is collected, each is started for a device and serves that one only, and one
stands by on each. One that holds any other device, or one whose memory tests need, has left by itself.
"""

import os
from collections.abc import Callable, Sequence

from ondol.fleet.agent.keeper import Keeper
from ondol.fleet.agent.launch import SpawnLauncher
from ondol.fleet.starts import DEVICE_ENV
from ondol.host import killing, proctree


def fits(worker: int, free: int) -> bool:
    """One more worker of this size may wait, and as much again stays free for what tests take."""
    return free >= 2 * worker


class Spares:
    """What an agent has in hand; `start` makes one. None where workers are forked (no `launcher`) and cost nothing."""

    def __init__(self, start: Callable[[dict[str, str]], Keeper], launcher: SpawnLauncher | None) -> None:
        self._start = start
        self._launcher = launcher
        self.waiting: list[Keeper] = []
        #: Killed, and not gone yet: nobody may take one of them.
        self._ended: list[Keeper] = []
        #: None is wanted any more, or one died while it collected or did not fit: another one would, too.
        self._over = launcher is None

    @property
    def all(self) -> list[Keeper]:
        return self.waiting + self._ended

    def warm(self, count: int) -> None:
        """Workers that the run will need in any case."""
        if self._launcher is not None:
            homes = self._launcher.session.homes or [{}]
            self.waiting += [self._start(homes[number % len(homes)]) for number in range(count)]

    def stand_by(self, workers: Sequence[Keeper]) -> None:
        """There is more to run: have one in hand, or one for each device if it must be started for one."""
        if self._over or self._launcher is None:
            return
        there = [keeper.place.env for keeper in self.waiting]
        for home in self._launcher.session.homes or [{}]:
            if home in there or (there and not home):
                continue
            largest = max((proctree.resident(keeper.pid) for keeper in workers), default=0)
            self._over = not fits(largest, proctree.free_memory())
            if self._over:
                return
            self.waiting.append(self._start(home))

    def trim(self) -> None:
        """Items have ended: whoever needed one at the start has taken it."""
        kept = {keeper.place.env.get(DEVICE_ENV, ""): keeper for keeper in reversed(self.waiting)}
        self._end([keeper for keeper in self.waiting if keeper not in kept.values()])

    def take(self, env: dict[str, str]) -> Keeper | None:
        """The one that is ready, or will be first, of those that can live there."""
        fit = [keeper for keeper in self.waiting if keeper.place.env.get(DEVICE_ENV) in (None, env.get(DEVICE_ENV))]
        taken = min(fit, key=lambda keeper: keeper.state != "waiting", default=None)
        if taken is not None:
            self.waiting.remove(taken)
        return taken

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
