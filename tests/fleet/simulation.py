"""A whole run in one process and without a clock: the real controller, scheduler and agent, and workers made of steps.

Whoever moves next is chosen by a seed: a step of a worker, a turn of the agent, a turn of the controller, time passing.
Workers may also move in the middle of an agent's turn, wherever that looks at something that both of them use. So a
race that one run in a thousand has on a busy machine is a number here, and the same number has it again.

The workers follow `fleet/worker/worker.py` message by message; pipes, sockets and boards are real. Processes are not:
who they are, how they die and what a signal does to them is decided here (`Kernel`).
"""

from __future__ import annotations

import os
import random
import select
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.simulated import (
    ENDED,
    OUTCOME,
    TOKEN,
    Execution,
    Kernel,
    Killed,
    Probe,
    SharedChannel,
    SharedLane,
    Suite,
    Worker,
    short,
)
from ondol.fleet import journal, messages, wire
from ondol.fleet.agent import agent as agent_module
from ondol.fleet.agent import keeper as keeper_module
from ondol.fleet.agent import spares as spares_module
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.launch import SpawnLauncher, Started
from ondol.fleet.board import Board
from ondol.fleet.controller import controller as controller_module
from ondol.fleet.controller.controller import Controller
from ondol.fleet.controller.link import AgentLink
from ondol.fleet.devices import Fleet
from ondol.fleet.messages import Buried, Ended, Event, RunItem
from ondol.fleet.record import Book
from ondol.fleet.schedule import build
from ondol.fleet.starts import Place, Rules, Session

#: More moves than any of these runs needs: who is still moving then goes round in circles.
MOVES = 6_000


class Stuck(AssertionError):
    """Nobody can move, or everybody moves and nothing happens."""


class Launcher(SpawnLauncher):
    """Forks and spawns cost nothing here; `SpawnLauncher` is what an agent knows spares by."""

    def __init__(self, world: World) -> None:
        devices = world.suite.devices if world.suite.takes_devices else []
        super().__init__(Session([], "", "", False, [{"ONDOL_DEVICE": device.name} for device in devices]))
        self.world = world

    def start(self, place: Place, inherited: Iterable[int]) -> Started:
        ours, theirs = wire.pair()
        channel, lane = SharedChannel(ours, TOKEN), SharedLane.open(TOKEN)
        channel.world = lane.world = self.world  # type: ignore[attr-defined]
        board, pid = Board(), 10_000 + len(self.world.workers)
        self.world.workers[pid] = Worker(self.world, pid, theirs, lane, board, place)
        self.world.living.append(self.world.workers[pid])
        self.world.say(f"the agent starts w{pid} at {place.slot or 'no place'}")
        return Started(pid, channel, os.memfd_create("dump"), board, lane)


class Bridge(AgentLink):
    """The controller's end, and with it the moment in which everybody else moves: it waits for events."""

    def __init__(self, world: World, rules: Rules) -> None:
        ours, theirs = wire.pair()
        super().__init__(0, wire.Channel(ours, TOKEN), set(), 0.0)
        self.world = world
        world.link = self
        launcher: Any = Launcher(world)
        if not world.suite.spawned:
            launcher = type("Forks", (), {"start": staticmethod(launcher.start)})()
        self.agent = Agent(wire.Channel(theirs, TOKEN), launcher, world.suite.limits, rules, lambda: world.now)
        self.agent._end_everything = self.end_all  # type: ignore[method-assign]
        self.agent._patience = lambda now: 0.0  # type: ignore[method-assign]
        self.agent._unreapable = self.unreapable  # type: ignore[method-assign]
        self.running: dict[str, tuple[int, int]] = {}
        self.over = self.woken = False
        self.forgotten: list[Any] = []
        if world.suite.warm:
            self.send(messages.Warm(world.suite.warm))

    def end_all(self) -> None:
        for worker in self.world.workers.values():
            if worker.agent is self.agent:
                worker.kill()

    def unreapable(self, keeper: Any, what: str) -> None:
        Agent._unreapable(self.agent, keeper, what)
        self.forgotten.append(keeper)

    def die(self) -> None:
        self.over = True
        self.end_all()
        self.agent.control.close()

    @property
    def agent_able(self) -> bool:
        if self.over:
            return False
        due = [k.next_look(self.world.now) for k in self.agent._keepers()]
        late = any(t is not None and t <= self.world.now for t in due)
        return bool(late or self.woken or self.agent.probes or self.agent._outbox or self.agent._selector.select(0))

    def turn(self) -> None:
        self.woken = False
        try:
            self.agent._turn()
        except Killed:
            return
        if self.agent.leaving and not self.agent._busy():
            self.agent._flush(final=True)
            self.die()

    def send(self, message: messages.ToNode) -> None:
        self.world.say(f"controller says {short(message)}")
        self.world.asked(message)
        super().send(message)

    def receive(self, timeout: float | None, also: int | None = None) -> list[Event]:
        assert timeout or self.world.controller._to_show, "it burns a core until something happens"
        if self._outbox:
            self._flush()
        self.world.go_on()
        found = super().receive(0.0, None)
        for event in found:
            self._check(event)
        return found

    def _check(self, event: Event) -> None:
        self.world.say(f"controller hears {short(event)}")
        if isinstance(event, messages.Started):
            assert event.slot not in self.running, f"two at once: {event}"
            self.running[event.slot] = event.item, event.attempt
        if isinstance(event, messages.StartFailed):
            assert self.world.struck["start-fails"], f"nothing was wrong there: {event}"
        if isinstance(event, Ended):
            assert self.running.pop(event.slot, None) == (event.item, event.attempt), f"never begun: {event}"
        if isinstance(event, messages.Revoked) and self.running.get(event.slot, (None,))[0] in event.items:
            del self.running[event.slot]
        if not isinstance(event, messages.Revoked | messages.WorkerUp):
            self.world.fruitless.clear()

    def bury(self) -> Buried:
        clean = self.agent.leaving
        self.channel.close()
        if not self.over:
            self.die()
        self.agent._selector.close()
        for keeper in (*self.agent._keepers(), *self.forgotten):
            keeper.close()
        return Buried(clean, "gone")


class Interrupts:
    """Ctrl-C, once."""

    count = 0

    def fileno(self) -> int:
        return -1

    def acknowledge(self) -> None:
        pass


class Show:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: {} if name == "given" else ""

    def __init__(self, maxfail: bool) -> None:
        self._maxfail, self._failed = maxfail, False

    def result(self, _number: int, item: Any) -> str:
        self._failed |= item.bad
        return ""

    def wants_to_stop(self) -> str:
        return "maxfail" if self._maxfail and self._failed else ""


class World:
    """Everything, and who moves next."""

    def __init__(self, suite: Suite, path: Path, patch: Any) -> None:
        self.suite = suite
        install(patch, self)
        self.rng = random.Random(suite.seed)
        self.now = 100.0
        self.workers: dict[int, Worker] = {}
        self.living: list[Worker] = []
        self.executions: list[Execution] = []
        self.trace: list[str] = []
        self.moves = 0
        self.late: set[int] = set()
        self.agents_killed: list[str] = []
        self.struck: Counter[str] = Counter()
        self.interrupts = Interrupts()
        #: Slot → how often it was asked for what it has, since anything happened.
        self.fruitless: Counter[str] = Counter()
        self._busy = False
        self.link: Bridge
        self._idle = False
        rules = suite.rules._replace(tmpdir=str(path))

        def start() -> Bridge:
            nonlocal rules
            made = Bridge(self, rules)
            rules = rules._replace(ahead=0)
            return made

        self.book = Book(path / "journal")
        slots = {slot.name: slot.device for slot in suite.slots}
        items = [w for w in suite.works if w.index < 1000]
        self.book.write(journal.Run(slots=slots), journal.Planned([str(w.index) for w in items]))
        works = [replace(w, nodeid=f"t.py::{w.index}", timeout=suite.timeout) for w in suite.works]
        scheduler = build(works, suite.slots, suite.devices, retries_first=suite.settings.careful, depth=suite.depth)
        show: Any = Show(suite.settings.careful)
        interrupts: Any = self.interrupts
        fleet = Fleet(suite.devices)
        self.controller = Controller(
            fleet, scheduler, start, self.book, show, suite.settings, interrupts, suite.prepares
        )

    def say(self, what: str) -> None:
        self.trace.append(f"{self.now:g} {what}")

    def strikes(self, event: str, chance: float) -> bool:
        """Whether it happens now; each at most a few times."""
        if event not in self.suite.events or self.struck[event] > 2 or self.rng.random() > chance:
            return False
        self.struck[event] += 1
        return True

    def begin(self, worker: Worker, message: RunItem) -> Execution:
        before = sum(1 for e in self.executions if e.work == message.item)
        act = self.suite.act(message.item, before)
        one = Execution(message.item, message.attempt, message.slot, worker.pid, act)
        self.executions.append(one)
        self.say(f"w{worker.pid} begins {message.item}/{message.attempt}: {act}")
        return one

    def kill_agent(self, by: str) -> None:
        self.say(f"the agent is killed by {by}")
        self.agents_killed.append(by)
        self.link.die()

    def asked(self, message: messages.ToNode) -> None:
        if isinstance(message, messages.Revoke):
            self.fruitless[message.slot] += 1
            if self.fruitless[message.slot] > 4:
                raise Stuck(f"{message.slot} is asked again and again for what it has begun")

    # ------------------------------------------------------------------ who moves

    def able(self) -> list[Worker]:
        self.living = [w for w in self.living if not w.zombie]
        return [w for w in self.living if w.able]

    def preempt(self) -> None:
        """In the middle of the agent's turn."""
        if self._busy or self.rng.random() < 0.5:
            return
        self._busy = True
        try:
            for _ in range(self.rng.choice([1, 1, 2, 5])):
                if here := self.able():
                    self.rng.choice(here).step()
                if self.link.over:
                    raise Killed
        finally:
            self._busy = False

    def go_on(self) -> None:
        """Until the controller moves."""
        while True:
            self.moves += 1
            if self.moves > MOVES:
                raise Stuck("it goes on and on")
            here, agent = self.able(), self.link.agent_able
            news = bool(select.select([self.link.channel.sock], [], [], 0)[0])
            if not (here or agent or news):
                if not self._idle:
                    self._idle = True  # it may have something to hand out
                    return
                self._wait()
                continue
            self._idle = False
            if "interrupt" in self.suite.events and not self.interrupts.count and self.rng.random() < 0.01:
                self.say("Ctrl-C")
                self.interrupts.count = 1
                return
            choices = [("worker", bool(here)), ("agent", agent), ("controller", news)]
            who = [name for name, can in choices if can]
            chosen = self.rng.choices(who, [self.suite.paces[name] for name in who])[0]
            if chosen == "controller":
                return
            if chosen == "agent":
                self.link.turn()
            else:
                self.rng.choice(here).step()

    def _wait(self) -> None:
        """Nobody can do anything now: time passes, up to the next thing that somebody waits for."""
        agent = self.link.agent
        times = [w.at for w in self.workers.values() if isinstance(w.at, float) and w.status is None]
        if not self.link.over:
            times += [t for k in agent._keepers() if (t := k.next_look(self.now)) is not None and t != float("inf")]
        times.append(self.now + self.controller._time_left())
        times = [t for t in times if self.now < t < float("inf")]
        if not times or all(line.endswith("time passes") for line in self.trace[-50:]):
            raise Stuck("nobody can move")
        self.now = min(times)
        self.say("time passes")
        self._idle, self.link.woken = False, True

    # ------------------------------------------------------------------ what must be true in the end

    def run(self) -> None:
        self.controller.run()
        self.check()

    def close(self) -> None:
        if self.link.channel.fileno() >= 0:
            self.link.bury()
        for worker in self.workers.values():
            worker.bury()
        self.book.close()

    def check(self) -> None:
        record = self.book.record
        for number, item in enumerate(record.items):
            assert item.verdict, f"{number} has no verdict"
        assert not self.link.running, f"begun and never ended: {self.link.running}"
        calm = not self.agents_killed and not self.interrupts.count and not record.stopped
        for number, item in enumerate(record.items):
            ran = [e for e in self.executions if e.work == number]
            if not self.agents_killed:
                assert [e.attempt for e in ran] == sorted({e.attempt for e in ran}), f"{number} was run twice: {ran}"
            for attempt in item.attempts:
                self._check_attempt(number, attempt, [e for e in ran if e.attempt == attempt.number])
            if calm and not record.quarantines and number not in self.late:
                self._check_verdict(number, item, ran)
            if len(self.agents_killed) == 1 and all(e.act == "pass" for e in self.executions):
                excused = record.stopped or record.quarantines or number in self.late
                assert item.verdict == "passed" or excused, f"{number} pays for the agent: {item}"

    def _check_attempt(self, number: int, attempt: Any, ran: list[Execution]) -> None:
        what = f"{number}/{attempt.number}: {attempt.outcome} ({attempt.reason}), in truth {ran}"
        if attempt.outcome in {"device-lost", "not-run"} or self.agents_killed:
            return
        if not attempt.device and not ran:
            return  # of its preparation
        assert len(ran) == 1, what
        (one,) = ran
        if attempt.outcome == "crashed":
            assert one.end == "crashed" or one.act in {"deaf", "mute"}, what
        elif attempt.outcome == "timeout":
            assert one.act in {"hang", "wakes", "slow"} or self.suite.settings.session_timeout, what
        else:
            assert one.end == "done", what

    def _check_verdict(self, number: int, item: Any, ran: list[Execution]) -> None:
        prepared = [e for e in self.executions if self.suite.prepares.get(e.work) == number]
        if any(e.act in {"fail", "crash"} for e in prepared):
            assert item.verdict in {"error", "crashed"}
            return
        act = ran[-1].act
        expected = ENDED.get(act, OUTCOME.get(act, "passed"))
        assert item.verdict == expected, f"{number} is {item.verdict} ({item.why}), not {expected}: {ran}"
        if all(e.act == "pass" for e in ran):
            assert not item.flaky, f"{number} did nothing wrong: {item}"


def install(patch: Any, world: World) -> None:
    kernel = Kernel(world)
    for module in (agent_module, keeper_module, spares_module):
        for name in ("os", "killing", "proctree"):
            if hasattr(module, name):
                patch.setattr(module, name, kernel)
    patch.setattr(controller_module, "time", kernel)
    started = type("Started", (), {"start": staticmethod(lambda message, _now: Probe(world, message.device))})
    patch.setattr(agent_module, "RunningProbe", started)
