"""What the simulation of a run is made of: suites, workers that are made of steps, and the kernel that they live in."""

from __future__ import annotations

import inspect
import os
import random
import select
import signal
import socket
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ondol.fleet import messages, wire
from ondol.fleet.board import Board
from ondol.fleet.controller.controller import RunSettings
from ondol.fleet.messages import Done, RunItem
from ondol.fleet.model import Device, Slot, Work
from ondol.fleet.starts import Limits, Place, Rules
from ondol.fleet.verdict import Policy
from ondol.host import killing

if TYPE_CHECKING:
    from fleet.simulation import World

TOKEN = b"s" * 16
#: What an item may do beside passing; nobody but itself pays for it.
ACTS: tuple[str, ...] = (
    "fail",
    "crash",
    "hang",
    "wakes",
    "slow",
    "deaf",
    "dirty",
    "poison",
    "exit",
    "lookup",
    "dies-after",
    "big",
)
#: Writes an end that is not its own; its end is lost; a fork of it takes what its worker was handed ahead.
ACTS += ("forges", "mute", "steals")
#: What happens to a run from outside.
EVENTS = ("interrupt", "kills-agent", "probe", "start-fails", "opens-device", "unkillable", "late-crash")
ENDED = {
    "crash": "crashed",
    "hang": "timeout",
    "wakes": "timeout",
    "slow": "timeout",
    "deaf": "crashed",
    "mute": "crashed",
}
OUTCOME = {"fail": "failed", "exit": "error", "lookup": "error", "poison": "error"}


class Killed(BaseException):
    """Raised in the agent: it ends in the middle of what it does."""


class Dead(BaseException):
    """Raised in a worker: its process ends here, with this wait status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class Suite:
    """What is run, and what its items do, the first time, the second time, …; the last one for ever."""

    seed: int
    works: list[Work] = field(default_factory=list)
    acts: dict[int, list[str]] = field(default_factory=dict)
    prepares: dict[int, int] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    settings: RunSettings = field(default_factory=RunSettings)
    limits: Limits = field(default_factory=Limits)
    rules: Rules = field(default_factory=lambda: Rules(""))
    timeout: float = 0.0
    spawned: bool = False
    warm: int = 0
    #: Tests take their device while they are collected.
    takes_devices: bool = False
    depth: int = 2
    events: frozenset[str] = frozenset()
    #: How often each moves, compared with the others.
    paces: dict[str, float] = field(default_factory=dict)

    def act(self, work: int, execution: int) -> str:
        chosen = self.acts.get(work, ["pass"])
        return chosen[min(execution, len(chosen) - 1)]


def draw(seed: int, **focus: Any) -> Suite:
    """A small run: few items, few kinds of trouble, so that what goes wrong can be read. `focus` is not left to chance."""
    rng = random.Random(seed)
    suite = Suite(seed, spawned=rng.random() < 0.3)
    count, per_device = rng.randint(1, 14), rng.choice([1, 1, 1, 2])
    suite.devices = [Device(f"d{n}", probe=("probe",)) for n in range(rng.choice([1, 1, 2, 2, 3]))]
    suite.slots = [Slot(f"{d.name}.{n}", d.name) for d in suite.devices for n in range(per_device)]
    kinds = focus.pop("kinds", rng.sample(ACTS, rng.choice([0, 0, 1, 1, 2])))
    mixed = rng.random() < 0.3
    for n in range(count):
        need = rng.choice([1, 1, 2]) if mixed else 1
        work = Work(
            n,
            module=rng.choice("aab"),
            devices=min(need, len(suite.devices)),
            group=rng.choice(["", "", "g"]) if mixed else "",
            isolate=mixed and rng.random() < 0.2,
            runtime=rng.choice(["", "", "r"]) if mixed else "",
        )
        if mixed and rng.random() < 0.2:
            work = replace(work, after=1000 + n)
            suite.prepares[1000 + n] = n
        suite.works.append(work)
        if kinds and rng.random() < 0.3:
            suite.acts[n] = [rng.choice(kinds), *rng.choice([[], ["pass"]])]
    if suite.prepares:
        suite.slots += [Slot("prepare0", ""), Slot("prepare1", "")][: len(suite.prepares)]
        suite.works += [Work(work, module="prepare", devices=0) for work in suite.prepares]
        suite.acts |= {w: [rng.choice(["fail", "crash"])] for w in suite.prepares if kinds and rng.random() < 0.2}
    suite.timeout = rng.choice([0.0, 7.0]) if not {"hang", "wakes", "slow"} & set(kinds) else 7.0
    suite.limits = Limits(startup=60.0, teardown=20.0, grace=1.0, reap=10.0, native_dump=0.0)
    recycle = rng.choice([0, 0, 0, 2])
    suite.rules = Rules("", rng.choice(["report", "recycle"]), recycle_after=recycle, ahead=rng.choice([8, 8, 1]))
    policy = Policy(retries=rng.choice([0, 1, 2]), judge=rng.random() < 0.5)
    careful = rng.random() < 0.15
    suite.settings = RunSettings(policy, careful=careful, session_timeout=rng.choice([0.0] * 9 + [30.0]))
    suite.depth = 1 if careful else rng.choice([2, 2, 8])
    suite.spawned = focus.get("spawned", suite.spawned)
    suite.warm = rng.choice([0, len(suite.slots)]) if suite.spawned else 0
    suite.takes_devices = suite.spawned and rng.random() < 0.3
    suite.events = frozenset(rng.sample(EVENTS, rng.choice([0, 0, 1, 1, 2, 3])))
    suite.paces = {who: rng.choice([0.05, 0.3, 1.0, 3.0]) for who in ("worker", "agent", "controller")}
    return replace(suite, **focus)


@dataclass
class Execution:
    """What really happened to an item, once."""

    work: int
    attempt: int
    slot: str
    pid: int
    act: str
    #: Empty while it runs; "done", "crashed" by itself, or "killed" from outside.
    end: str = ""


WAIT, HANG = "waits for a message", "hangs"
Life = Generator[Any, None, None]


class Worker:
    """One process; `step` lets it come to the next thing that somebody else could see."""

    def __init__(
        self, world: World, pid: int, sock: socket.socket, lane: wire.AheadPipe, board: Board, place: Place
    ) -> None:
        self.world, self.pid, self.place = world, pid, place
        self.agent = world.link.agent
        self.sock, self.lane, self.board = sock, wire.AheadPipe(TOKEN, os.dup(lane.reading)), Board(board._memory)
        self.channel = wire.Channel(sock, TOKEN)
        self.inbox: list[messages.Message] = []
        self.ran = 0
        self.now: Execution | None = None
        self.last: int | None = None
        self.at: Any = None
        self.signals: list[int] = []
        self.status: int | None = None
        self.zombie = self.reaped = self.immortal = False
        self.death, self.dying = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.life = self._live()

    # ------------------------------------------------------------------ as the kernel sees it

    @property
    def able(self) -> bool:
        if self.zombie:
            return False
        if self.status is not None:
            return not self.immortal
        if self.signals:
            return True
        if self.at == WAIT:
            return bool(self.inbox) or self.sock.fileno() < 0 or bool(select.select([self.sock], [], [], 0)[0])
        if isinstance(self.at, float):
            return self.world.now >= self.at
        return bool(self.at != HANG)

    def step(self) -> None:
        if self.status is not None:
            # Its descriptors were closed before; now it is gone.
            self.zombie = True
            os.close(self.dying)
            self.dying = -1
            return
        try:
            if self.signals:
                number = self.signals.pop(0)
                self.world.say(f"w{self.pid} gets {signal.Signals(number).name}")
                if number == signal.SIGTERM and self.now and self.now.act == "wakes":
                    self.at = None
                    return
                self.at = self.life.throw(KeyboardInterrupt if number == signal.SIGINT else Dead(number))
            else:
                self.at = next(self.life)
        except Dead as end:
            self._die(end.status)
        except (KeyboardInterrupt, OSError):
            self._die(71 << 8)
        except StopIteration:
            self._die(0)

    def _die(self, status: int) -> None:
        self.world.say(f"w{self.pid} ends, {killing.say_status(status)}")
        self.status = status
        if self.now is not None and not self.now.end:
            self.now.end = "killed" if status in (signal.SIGKILL, signal.SIGTERM) else "crashed"
        self.close()

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more."""
        if inspect.getgeneratorstate(self.life) == inspect.GEN_RUNNING:
            self.signals.append(signal.SIGKILL)  # by what it does itself
        elif self.status is None:
            self.life.close()
            self._die(signal.SIGKILL)

    def close(self) -> None:
        self.sock.close()
        if self.lane.reading >= 0:
            os.close(self.lane.reading)
            self.lane.reading = -1

    def bury(self) -> None:
        self.close()
        self.life.close()
        for fd in (self.death, self.dying):
            if fd >= 0:
                os.close(fd)
        self.death = self.dying = -1

    # ------------------------------------------------------------------ as worker.py has it

    def _say(self, message: messages.FromWorker) -> None:
        self.world.say(f"w{self.pid} says {short(message)}")
        self.channel.send(message)

    def _receive(self) -> Generator[Any, None, Any]:
        self.board.waits()
        while not self.inbox:
            yield WAIT
            found, open_ = self.channel.receive_all()
            self.inbox += found
            if not open_ and not self.inbox:
                return None
        self.board.hears()
        return self.inbox.pop(0)

    def _live(self) -> Life:
        world = self.world
        if world.suite.spawned:
            yield
        if world.strikes("start-fails", 0.3):
            raise Dead(3 << 8)
        socket.send_fds(self.sock, [b"F"], [])
        yield
        if not self.place.slot:
            if world.strikes("opens-device", 0.5):
                raise Dead(0)  # it has opened a device while it collected
            self._say(messages.Spare())
            message = yield from self._receive()
            if not isinstance(message, messages.MoveIn):
                raise Dead(0)
            self.board._heard = 0
            home, self.place = self.place.env, Place(**message.place)
            assert home.items() <= self.place.env.items(), f"w{self.pid} holds {home}, not {self.place.env}"
            yield
        yield from self._serve()

    def _serve(self) -> Life:
        self._say(messages.Hello())
        ahead: RunItem | None = None
        while True:
            try:
                message = ahead or (yield from self._receive())
            except KeyboardInterrupt:
                message = None
            if isinstance(message, messages.Clear):
                yield
                self._late()
                self._say(messages.Cleared())
                continue
            if not isinstance(message, RunItem):
                break
            ahead = yield from self._run(message)
            if message.last:
                break
        yield
        self._late()
        yield
        self._say(messages.Left())
        yield

    def _late(self) -> None:
        if self.last is not None and self.world.strikes("late-crash", 0.1):
            self.world.late.add(self.last)
            raise Dead(signal.SIGSEGV)

    def _run(self, message: RunItem) -> Generator[Any, None, RunItem | None]:
        world = self.world
        self.now = world.begin(self, message)
        act = self.now.act
        if act == "lookup" or message.prepare:
            yield
            if act == "crash":
                raise Dead(signal.SIGSEGV)
            self.ran += bool(message.prepare)
            escaped = "broken" if act in {"lookup", "fail"} else ""
            return self._done(Done(message.item, message.attempt, self.ran, escaped=escaped))
        done = Done(message.item, message.attempt, self.ran + 1)
        try:
            yield from self._phases(message, act)
            if act == "exit":
                done = done._replace(exit=["enough", 2])
        except KeyboardInterrupt:
            done = done._replace(escaped="KeyboardInterrupt")
        self.ran += 1
        if act == "dirty":
            done = done._replace(dirt=[["thread", "t"]])
        if act == "poison":
            done = done._replace(poison="gone")
        yield
        self.board.enter("", world.now)
        yield
        if act == "steals":
            self.lane.take()  # its fork, which shares the descriptor
        ahead = self.lane.take() if done.well and not message.last and act != "mute" else None
        yield
        return self._done(done._replace(at=self.board.since), ahead if isinstance(ahead, RunItem) else None)

    def _done(self, done: Done, ahead: RunItem | None = None) -> RunItem | None:
        held = [b'{"when":"call","outcome":"%s"}' % (b"failed" if self._act == "fail" else b"passed")]
        self.board.clear()
        assert self.now is not None
        if self.now.act == "forges":
            self._say(done._replace(attempt=done.attempt + 1))
            self._say(Done(999, 1, 1))
        if self.now.act != "mute":
            self._say(done._replace(begins=ahead.item if ahead else None, block=messages.as_block(held)))
        self.now.end, self.last = "done", self.now.work
        if self.now.act == "dies-after" and ahead is None:
            self.world.late.add(self.now.work)
            raise Dead(signal.SIGSEGV)
        self.now = None
        return ahead

    @property
    def _act(self) -> str:
        return self.now.act if self.now else "pass"

    def _phases(self, message: RunItem, act: str) -> Life:
        world = self.world
        for phase in ("setup", "call", "teardown"):
            self.board.enter(phase, world.now)
            yield
            if phase != "call":
                continue
            if act == "crash":
                raise Dead(signal.SIGSEGV)
            if act in {"hang", "wakes", "deaf"}:
                if act == "deaf":
                    self.sock.close()
                yield HANG
            if act == "slow":
                yield world.now + message.timeout + 0.01
            if act == "big":
                self.board.add(b'{"when":"setup","outcome":"passed"}')
            if world.strikes("kills-agent", 0.05):
                world.kill_agent(f"w{self.pid}")
                yield HANG  # it dies with its parent


class Kernel:
    """What agent and keeper ask of `os`, `killing` and `proctree`: answered from the world's workers."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pidfd_open(self, pid: int) -> int:
        return os.dup(self.world.workers[pid].death)

    def wait4(self, pid: int, _options: int) -> tuple[int, int, Any]:
        worker = self.world.workers[pid]
        assert worker.zombie, "the agent waits for a process that lives"
        if worker.reaped:
            raise ChildProcessError
        worker.reaped = True
        worker.bury()
        return pid, worker.status or 0, type("Usage", (), {"ru_maxrss": 0})

    def _exit(self, _status: int) -> None:
        raise AssertionError("the agent believes that its controller is gone")

    def alive(self, pid: int) -> bool:
        return not self.world.workers[pid].zombie

    def descendants(self, _pid: int) -> list[int]:
        return []

    def children(self, _pid: int) -> list[int]:
        return []

    def catches(self, _pid: int, _number: int) -> bool:
        return False

    def describe(self, pid: int) -> str:
        return f"pid {pid}"

    say_status = staticmethod(killing.say_status)
    DUMP_SIGNAL = killing.DUMP_SIGNAL

    def send(self, pid: int, number: int) -> None:
        worker = self.world.workers[pid]
        if worker.status is None:
            worker.signals.append(number)

    def send_tree(self, pid: int, number: int, _extra: Iterable[int] = ()) -> set[int]:
        self.send(pid, number)
        return {pid}

    def kill_all(self, pids: Iterable[int], _own: int) -> None:
        for pid in pids:
            worker = self.world.workers.get(pid)
            if worker is not None:
                worker.immortal = worker.status is None and self.world.strikes("unkillable", 1.0)
                worker.kill()

    def resident(self, _pid: int) -> int:
        return 4

    def free_memory(self) -> int:
        return self.world.rng.choice([10, 10, 10, 1])

    def monotonic(self) -> float:
        return self.world.now


class Probe:
    """Answers when it likes."""

    def __init__(self, world: World, device: str) -> None:
        self.world, self.device, self.pid = world, device, 0

    def next_look(self, now: float) -> float:
        return now

    def over(self, _now: float) -> bool:
        return self.world.rng.random() < 0.5

    def fault(self) -> str | None:
        return "sick" if self.world.strikes("probe", 0.5) else None


class SharedLane(wire.AheadPipe):
    """The agent's end: the worker may move just before each look."""

    world: World

    def _read(self) -> bytes:
        self.world.preempt()
        return super()._read()

    def put(self, message: messages.Message) -> bool:
        self.world.preempt()
        return super().put(message)


class SharedChannel(wire.Channel):
    world: World

    def receive_all(self) -> tuple[list[messages.Message], bool]:
        self.world.preempt()
        found = super().receive_all()
        self.world.preempt()
        return found

    def send(self, *sent: messages.Message) -> None:
        self.world.preempt()
        super().send(*sent)
        self.world.preempt()


def short(message: Any) -> str:
    fields = [repr(v) for v in message[:5]]
    begins = f" begins {message.begins}" if isinstance(message, Done) else ""
    hint = f" hint {message.hint}" if isinstance(message, RunItem) else ""
    return f"{type(message).__name__}({', '.join(fields)}){begins}{hint}"
