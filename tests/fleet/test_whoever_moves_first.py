"""Controller, agent and workers move in any order that a busy machine may give them: the run comes to its end, every
item has the one verdict that it deserves, and nobody pays for a neighbour.

Each seed is a run of its own (`simulation`), and the same one every time. To look for new ones, 20,000 that nobody has
seen: HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.simulated import Suite, draw
from fleet.simulation import World
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.keeper import HostSlot, Keeper
from ondol.fleet.agent.spares import Spares
from ondol.fleet.controller.controller import RunSettings
from ondol.fleet.messages import RunItem
from ondol.fleet.model import Device, Slot, Work
from ondol.fleet.record import RunRecord

SEEDS = range(200)
if os.environ.get("HYPOTHESIS_PROFILE") == "explore":
    first = random.SystemRandom().randrange(1 << 40)
    SEEDS = range(first, first + 20_000)


def play(seeds: Iterable[int], path: Path, **focus: Any) -> None:
    for seed in seeds:
        here = path / str(seed)
        here.mkdir()
        run(draw(seed, **focus), here)


def run(suite: Suite, path: Path) -> RunRecord:
    with pytest.MonkeyPatch.context() as patch:
        world = World(suite, path, patch)
        try:
            world.run()
        except BaseException as error:
            story = "\n".join(world.trace[-200:])
            raise AssertionError(f"seed {suite.seed}: {error!r}\n{suite}\n{story}") from error
        finally:
            world.close()
    return world.book.record


def test_every_item_has_the_verdict_that_it_deserves(tmp_path: Path) -> None:
    play(SEEDS, tmp_path)


def test_the_deadline_of_the_run_ends_what_holds_several_devices(tmp_path: Path) -> None:
    """It has no deadline of its own, and no slot that is there all the time."""
    suite = draw(0, kinds=[], events=frozenset(), settings=RunSettings(session_timeout=30.0), prepares={}, timeout=0.0)
    both = [Device("d0"), Device("d1")]
    suite = replace(suite, works=[Work(0, "m", devices=2)], acts={0: ["hang"]}, devices=both)
    record = run(replace(suite, slots=[Slot(device.name, device.name) for device in both]), tmp_path)
    assert [item.verdict for item in record.items] == ["timeout"]


# ---------------------------------------------------------------------- each guard is taken away on purpose


def counts_what_came_back(patch: pytest.MonkeyPatch) -> None:
    """The agent believes that it got the last ones, whichever the worker had taken: a run hung, one in forty."""

    def take_back(self: Keeper, every: bool = False) -> list[RunItem]:
        untouched = len(self._empty_the_lane())
        return [self.ahead.pop() for _ in range(len(self.ahead) if every else untouched)][::-1]

    patch.setattr(Keeper, "take_back", take_back)
    patch.setattr(
        Keeper, "was_handed", lambda self, item: item is None or item in [m.item for m in list(self.ahead)[:1]]
    )


def keeps_what_nobody_will_run(patch: pytest.MonkeyPatch) -> None:
    """What a worker had taken up when its device was lost comes back after everything was given back."""
    whole = Agent._pump

    def pump(self: Agent, here: HostSlot) -> None:
        if not here.lost:
            whole(self, here)

    patch.setattr(Agent, "_pump", pump)


def blames_who_was_next(patch: pytest.MonkeyPatch) -> None:
    """An item that was handed to a worker that was dead has crashed."""
    patch.setattr(Keeper, "never_took_up", lambda _self: None)


def waits_for_who_waits(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a worker still runs what it was handed."""
    patch.setattr(Keeper, "waits_for_us", False)


def takes_killed_spares(patch: pytest.MonkeyPatch) -> None:
    """A spare that was ended a moment ago is still in the list of those who wait."""
    whole = Spares._end

    def end(self: Spares, keepers: list[Keeper]) -> None:
        stay = list(keepers)
        whole(self, keepers)
        self.waiting += stay
        self._ended.clear()

    patch.setattr(Spares, "_end", end)


def moves_who_holds_a_device(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits is taken for any device."""
    patch.setattr(Spares, "take", lambda self, _env: self.waiting.pop(0) if self.waiting else None)


def runs_on_after_ctrl_c(patch: pytest.MonkeyPatch) -> None:
    """What comes back then is handed to a new worker, which leaves at once; and again."""
    whole = Agent._pump

    def pump(self: Agent, here: HostSlot) -> None:
        interrupting, self.interrupting = self.interrupting, False
        whole(self, here)
        self.interrupting = interrupting

    patch.setattr(Agent, "_pump", pump)


def forgets_what_was_passed_over(patch: pytest.MonkeyPatch) -> None:
    """What a fork has taken out of the lane is gone with it."""

    def passed_over(self: Keeper, item: int) -> list[RunItem]:
        self.ahead = deque(message for message in self.ahead if message.item >= item)
        return []

    patch.setattr(Keeper, "passed_over", passed_over)


#: What is taken away, and in which runs somebody must notice.
SABOTAGES: dict[Callable[[pytest.MonkeyPatch], None], dict[str, Any]] = {
    counts_what_came_back: {"kinds": [], "depth": 8},
    keeps_what_nobody_will_run: {"kinds": ["poison"], "depth": 8, "events": frozenset({"probe"})},
    blames_who_was_next: {"kinds": ["dies-after"]},
    waits_for_who_waits: {"kinds": ["mute"]},
    takes_killed_spares: {"kinds": ["crash"], "spawned": True},
    moves_who_holds_a_device: {"kinds": ["crash"], "spawned": True, "takes_devices": True},
    runs_on_after_ctrl_c: {"kinds": [], "depth": 8, "events": frozenset({"interrupt"})},
    forgets_what_was_passed_over: {"kinds": ["steals"]},
}


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_without_a_guard_something_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[pytest.MonkeyPatch], None]
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        play(range(1000), tmp_path, **SABOTAGES[sabotage])
