"""The agent: owns the workers of one host. It obeys the controller, enforces deadlines, and never runs user code.

It stands between the controller, which runs the user's hooks and may be slow or die, and the workers, which run the
user's tests and may do anything. When the controller goes away, the agent ends every process of the run and then
itself.
"""

import gc
import os
import select
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from ondol.fleet import messages, wire
from ondol.fleet.agent.keeper import HostSlot, Keeper
from ondol.fleet.agent.launch import Launcher, Reborn, SpawnLauncher
from ondol.fleet.agent.probe import RunningProbe
from ondol.fleet.agent.spares import Spares
from ondol.fleet.messages import Command, Done, Ended, FromWorker, Late, Message, RunItem, never
from ondol.fleet.starts import Limits, Place, Rules
from ondol.host import killing, proctree

#: Who wakes so much later than it meant to was stopped; less than that is a busy machine.
STOOD_STILL = 1.0
#: Seconds for which an agent listens to nobody while each worker has more items than these ahead.
NAP, MANY = 0.002, 4
#: Seconds between the first and the last process of a node to which Slurm sends its SIGTERM.
NOTICE_PATIENCE = 2.0


class Agent:
    """The event loop of one host."""

    def __init__(
        self,
        control: wire.Channel,
        launcher: Launcher,
        limits: Limits,
        rules: Rules,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.control = control
        self.launcher = launcher
        self.limits = limits
        self.rules = rules
        self.clock = clock
        self.slots: dict[str, HostSlot] = {}
        self.probes: list[RunningProbe] = []
        self.spares = Spares(self._start_spare, launcher if isinstance(launcher, SpawnLauncher) else None)
        self.leaving = False
        self.interrupting = False
        self.noticed = False
        self._tmpdirs = count(1)
        self._outbox = bytearray()
        self._token = control._token
        self._selector = selectors.EpollSelector()
        self._interest = selectors.EVENT_READ
        self._selector.register(control.fileno(), self._interest, self._on_control)
        control.sock.setblocking(False)

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Until told to leave, or until the controller is gone."""
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        proctree.become_subreaper()
        # Nothing is collected here, so that the pages that all workers share stay shared and a worker finds the garbage
        # of the imports as plain pytest would.
        gc.disable()
        try:
            while not (self.leaving and not self._busy()):
                self._turn()
                if self._nobody_needs_us():
                    time.sleep(NAP)
        except Reborn:
            raise  # a worker, which has nothing to end
        except BaseException:
            self._end_everything()
            raise
        self._end_everything()
        self._flush(final=True)

    def _turn(self) -> None:
        now = self.clock()
        if self._control_interest() != self._interest:
            self._interest = self._control_interest()
            self._selector.modify(self.control.fileno(), self._interest, self._on_control)
        patience = self._patience(now)
        ready = self._selector.select(patience)
        slept = self.clock() - now
        if patience is not None and slept > patience + STOOD_STILL:
            for keeper in self._keepers():
                keeper.not_watched(slept)
        for key, events in ready:
            key.data(events)
        now = self.clock()
        for keeper in self._keepers():
            if keeper.waits_for_us:
                self._hear_it_or_end_it(keeper)
            if keeper.ladder is None and keeper.overdue(now):
                self._listen(keeper)  # it may have ended in time, and said so since we looked
            keeper.look_at_the_clock(now)
            keeper.climb(now, lambda what, k=keeper: self._unreapable(k, what))  # type: ignore[misc]
        if self.noticed:
            self._take_back_everywhere()
        for probe in [p for p in self.probes if p.over(now)]:
            self.probes.remove(probe)
            self.tell(messages.Probed(probe.device, probe.fault()))
        self._flush()

    def _nobody_needs_us(self) -> bool:
        """All have so many short items in hand that nobody waits: what they say meanwhile is heard together."""
        keepers = self._keepers()
        busy = bool(keepers) and all(len(keeper.ahead) > MANY and keeper.ladder is None for keeper in keepers)
        return busy and not (self._outbox or self.probes or self.interrupting or self.leaving)

    def _patience(self, now: float) -> float | None:
        looks = [k.next_look(now) for k in self._keepers()] + [p.next_look(now) for p in self.probes]
        times = [t for t in looks if t is not None and t != float("inf")]
        return max(0.0, min(times) - now) if times else None

    def _keepers(self) -> list[Keeper]:
        of_slots = [k for b in self.slots.values() for k in (b.worker, b.standby) if k is not None]
        return of_slots + self.spares.all

    def _busy(self) -> bool:
        return bool(self._keepers() or self.probes)

    # ------------------------------------------------------------------ to and from the controller

    def tell(self, message: Message) -> None:
        """Queue it until the end of the turn: a slow controller must not hold up a deadline, nor be woken twice."""
        self._outbox += wire.encode(self._token, message)

    def _flush(self, final: bool = False) -> None:
        if final:
            self.control.sock.setblocking(True)
        try:
            while self._outbox:
                sent = self.control.sock.send(self._outbox[: 1 << 18])
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox.clear()

    def _control_interest(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)

    def _on_control(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if not events & selectors.EVENT_READ:
            return
        found, open_ = self.control.receive_all()
        for command in found:
            if isinstance(command, Command):
                self._obey(command)
        if not open_:
            self._end_everything()
            os._exit(1)

    def _obey(self, command: Command) -> None:  # noqa: C901 - one line per command
        match command:
            case RunItem():
                self._run(command)
            case messages.Revoke():
                self._revoke(self.slots[command.slot])
            case messages.Retire():
                self._retire(command.slot)
            case messages.Resume():
                self.slots[command.slot].held = False
                self._pump(self.slots[command.slot])
            case messages.Lose():
                self._lose(command)
            case messages.Probe():
                self.probes.append(RunningProbe.start(command, self.clock()))
            case messages.Warm():
                self.spares.warm(command.workers)
            case messages.Join():
                assert isinstance(self.launcher, SpawnLauncher)
                self.launcher.session = self.launcher.session._replace(**command._asdict())
            case messages.Interrupt():
                self._interrupt()
            case messages.Finish():
                self._finish()
            case messages.Kill():
                self.leaving = True
                self._end_everything()
            case messages.Ping():
                self.tell(messages.Pong())
            case _:
                never(command)

    def _on_term(self, *_: object) -> None:
        if self.rules.term_is_notice:
            self.noticed = True
            return
        self._end_everything()
        os._exit(1)

    def _run(self, message: RunItem) -> None:
        here = self.slots.get(message.slot)
        if here is None:
            here = self.slots[message.slot] = HostSlot(message.slot, message.env, list(message.devices))
        here.queue.append(message)
        self._pump(here)

    def _take_back(self, here: HostSlot, every: bool = False) -> None:
        """What its worker was handed ahead is first in line again."""
        if here.worker is not None:
            here.queue.extendleft(reversed(here.worker.take_back(every)))

    def _take_back_everywhere(self) -> None:
        for here in self.slots.values():
            self._take_back(here)

    def _revoke(self, here: HostSlot) -> None:
        self._take_back(here)
        taken = [message.item for message in here.queue]
        here.queue.clear()
        self.tell(messages.Revoked(here.name, taken))

    def _retire(self, slot: str) -> None:
        here = self.slots.get(slot)
        if here is None or (here.worker is None and here.standby is None):
            self.tell(messages.Retired(slot))
            return
        here.retiring = True
        self._take_back(here)
        now = self.clock()
        for keeper in (here.worker, here.standby):
            if keeper is not None and keeper.state in {"idle", "starting"}:
                keeper.end("retired", now)

    def _interrupt(self) -> None:
        """Ctrl-C: running items get KeyboardInterrupt and a moment; idle workers leave."""
        self.interrupting = True
        self._take_back_everywhere()
        self.spares.drop()
        for keeper in self._keepers():
            if keeper.state == "running":
                self._interrupt_item(keeper)
            elif keeper.state != "ending":
                keeper.end("interrupted", self.clock())

    def _interrupt_item(self, keeper: Keeper) -> None:
        killing.send(keeper.pid, signal.SIGINT)
        keeper.deadline = self.clock() + self.limits.grace
        keeper.phase = "interrupted"

    def _finish(self) -> None:
        self.leaving = True
        self.spares.drop()
        now = self.clock()
        for keeper in self._keepers():
            if keeper.state in {"idle", "starting"}:
                keeper.end("the run is over", now)

    def _lose(self, message: messages.Lose) -> None:
        """The device is set aside: end what runs there; what was only handed over goes back."""
        here = self.slots.get(message.slot)
        if here is None:
            return
        here.lost = True
        self._take_back(here)
        self._pump(here)
        for keeper in (here.worker, here.standby):
            if keeper is not None and keeper.ladder is None:
                keeper.start_ladder("device-lost", message.why, self.clock(), dump=False)

    # ------------------------------------------------------------------ workers

    def _launch(self, here: HostSlot) -> Keeper:
        here.generation += 1
        name = f"{here.name.replace(':', '-').replace('/', '-')}-{here.generation}"
        place = Place(name, here.name, here.env, "", here.devices, self.rules.hygiene)
        spare = None if place.collects else self.spares.take(here.env)
        place = place._replace(tmpdir=spare.place.tmpdir if spare else self._new_tmpdir())
        if spare is None or not isinstance(self.launcher, SpawnLauncher):
            return self._start(here, place)
        spare.here = here
        spare.move_in(place, self.launcher.session.base, self.clock())
        self.spares.stand_by([*self._keepers(), spare])
        return spare

    def _start_spare(self, env: dict[str, str]) -> Keeper:
        """At no place: nobody waits for it, and nobody is told of it."""
        place = Place("spare", "", env, self._new_tmpdir(), [], self.rules.hygiene)
        here = HostSlot("", {}, [])
        here.worker = self._start(here, place)
        return here.worker

    def _start(self, here: HostSlot, place: Place) -> Keeper:
        started = self.launcher.start(place, self._own_fds())
        keeper = Keeper(started, place, self.limits, self.clock())
        keeper.here = here
        self._selector.register(keeper.channel.fileno(), selectors.EVENT_READ, lambda _: self._on_worker(keeper))
        self._selector.register(keeper.pidfd, selectors.EVENT_READ, lambda _: self._on_death(keeper))
        return keeper

    def _new_tmpdir(self) -> str:
        tmpdir = os.path.join(self.rules.tmpdir, str(next(self._tmpdirs)))  # short: there will be sockets in it
        os.makedirs(tmpdir, mode=0o700, exist_ok=True)
        for link, target in self.rules.links.items():
            with suppress(OSError):  # what it leads to is a cache: without it the worker is colder
                os.symlink(target, os.path.join(tmpdir, link))
        return tmpdir

    def _own_fds(self) -> list[int]:
        # The selector's own descriptor would keep the others' sockets alive in the child.
        own = [self.control.fileno(), self._selector.fileno()]
        return own + [fd for keeper in self._keepers() for fd in keeper.descriptors()]

    def _pump(self, here: HostSlot) -> None:
        """Give the slot's worker its next item, or make a worker first."""
        if here.queue and (here.lost or self.interrupting):
            # Also what its worker had taken up when it was asked for, and took to its grave before it began.
            self._revoke(here)
        if not here.queue or here.retiring or here.held or self.noticed:
            return
        if here.worker is None:
            here.worker, here.standby = here.standby, None
        if here.worker is None:
            here.worker = self._launch(here)
        keeper, message = here.worker, here.queue[0]
        if keeper.state == "running":
            self._hand_ahead(keeper)
        if keeper.state != "idle":
            return
        now = self.clock()
        if keeper.ran and (message.fresh or message.runtime != keeper.runtime):
            why = "a fresh process is needed" if message.fresh else "another runtime is needed"
            keeper.end(why, now)
            return
        if keeper.ran and not message.prepare and message.item != keeper.expects:
            keeper.clear_for(message, now)
            return
        here.queue.popleft()
        self._tell_started(keeper, message)
        # Before it begins: an item that kills us at once would otherwise have run without anybody knowing.
        self._flush()
        keeper.run(message, now)
        self._hand_ahead(keeper)
        if message.last and here.queue and here.standby is None:
            here.standby = self._launch(here)

    def _hand_ahead(self, keeper: Keeper) -> None:
        """So that it never waits for us between two items; what it has not begun we can still take back."""
        queue = keeper.here.queue
        while queue and self._follows(keeper, queue[0]) and keeper.put_ahead(queue[0]):
            queue.popleft()

    def _follows(self, keeper: Keeper, message: RunItem) -> bool:
        """The worker can go from what it runs to this one by itself."""
        before = keeper.ahead[-1] if keeper.ahead else keeper.current
        if before is None or before.hint != message.item or before.last or before.prepare or message.prepare:
            return False
        ran, limit = keeper.ran + len(keeper.ahead) + 1, self.rules.recycle_after
        if len(keeper.ahead) >= self.rules.ahead or (limit and ran >= limit):
            return False
        busy = keeper.ladder is None and not self.leaving and not self.interrupting
        return busy and not message.fresh and message.runtime == before.runtime

    def _on_worker(self, keeper: Keeper) -> None:
        if keeper not in (keeper.here.worker, keeper.here.standby):
            return  # its death was seen in the same turn, and all that it had said was heard then
        if not self._listen(keeper):
            self._selector.unregister(keeper.channel.fileno())
            if proctree.alive(keeper.pid) and keeper.state != "ending" and keeper.ladder is None:
                keeper.went_deaf(self.clock())

    def _listen(self, keeper: Keeper) -> bool:
        """What it has said; whether its end is still open. A deadline that passed before it ended comes first."""
        found, open_ = keeper.read()
        ends = [message.at for message in found if isinstance(message, Done) and keeper.runs(message)]
        keeper.look_at_the_clock(min([self.clock(), *ends]))
        keeper.heard = self.clock()
        for message in found:
            self._from_worker(keeper, message)
        return open_

    def _from_worker(self, keeper: Keeper, message: Message) -> None:
        if not isinstance(message, FromWorker):
            keeper.channel.decoder.garbage += 1  # a test got hold of our channel
            return
        if keeper.ladder is not None and isinstance(message, messages.Hello | messages.Cleared | Done):
            # Its attempt is over by our clock. Signals of the ladder wake what hung, and it would report a pass.
            return
        now = self.clock()
        match message:
            case messages.Spare():
                self.spares.collected(keeper)
            case messages.Listed():
                keeper.here.held = True  # the controller may want other items to run there
                self.tell(message._replace(slot=keeper.here.name))
            case messages.Hello() | messages.Cleared():
                self._hello(keeper, message, now)
            case messages.LateReport() | messages.Warned() | messages.Output() | messages.Broken():
                self.tell(message)
            case messages.Left():
                keeper.left = True
            case Done():
                self._done(keeper, message, now)
            case _:
                never(message)

    def _hello(self, keeper: Keeper, message: messages.Hello | messages.Cleared, now: float) -> None:
        here = keeper.here
        if keeper.state in {"starting", "clearing"}:
            keeper.state = "idle"
            keeper.deadline = None
        keeper.left_as_a_spare = False
        if isinstance(message, messages.Hello):
            took = round(now - keeper.since, 4)
            self.tell(messages.WorkerUp(here.name, keeper.place.name, keeper.pid, took))
        if self.leaving or self.interrupting or here.retiring:
            keeper.end("the run is over", now)
        self._pump(here)

    def _done(self, keeper: Keeper, done: Done, now: float) -> None:
        here, current = keeper.here, keeper.current
        if current is None or not keeper.runs(done):
            return  # a test wrote it, or a fork of the worker
        if not keeper.was_handed(done.begins):
            why = f"its worker says that it begins item {done.begins}, which it does not have"
            keeper.start_ladder("crashed", why, now, dump=False)
            return
        keeper.current = None
        keeper.last_item = None if current.prepare else current.item
        warm, keeper.ran = keeper.ran > 0, done.ran
        garbage, keeper.channel.decoder.garbage = keeper.channel.decoder.garbage, 0
        told = {name: value for name, value in done._asdict().items() if name in Ended._fields}
        ended = Ended(here.name, keeper.place.name, how="done", warm=warm, garbage=garbage, **told)
        if self.interrupting and done.escaped == "KeyboardInterrupt":
            ended = ended._replace(how="interrupted", escaped="")
        self.tell(ended)
        if here.queue or keeper.ahead:
            self.spares.trim()
            self.spares.stand_by(self._keepers())
        if done.begins is not None:
            here.queue.extendleft(reversed(keeper.passed_over(done.begins)))
            message = keeper.ahead.popleft()
            self._tell_started(keeper, message)
            keeper.begins(message, now)
            if self.interrupting:
                self._interrupt_item(keeper)  # the first signal may have been for the item before
            self._pump(here)
            return
        self._take_back(here, every=True)
        keeper.state = "idle"
        keeper.deadline = None
        why = self._why_recycle(keeper, done, current)
        if why:
            keeper.end(why, now)
        else:
            self._pump(here)

    def _hear_it_or_end_it(self, keeper: Keeper) -> None:
        """It waits for us and we for it: what it said is still to be read, or was written into, or not believed."""
        before = keeper.standing
        self._listen(keeper)
        if keeper.standing == before:
            why = "its result is lost: its worker waits for the next item and never reported this one"
            keeper.start_ladder("crashed", why, self.clock())

    def _tell_started(self, keeper: Keeper, message: RunItem) -> None:
        self.tell(messages.Started(keeper.here.name, keeper.place.name, message.item, message.attempt, keeper.ran > 0))

    def _why_recycle(self, keeper: Keeper, done: Done, current: RunItem) -> str:
        if current.last:
            return "it ran alone"
        if done.poison:
            return f"device context poisoned: {done.poison}"
        if done.dirt and self.rules.hygiene == "recycle":
            return f"dirt: {done.dirt[0][0]}"
        if self.rules.recycle_after and keeper.ran >= self.rules.recycle_after:
            return f"ran {keeper.ran} items"
        if self.leaving or self.interrupting or keeper.here.retiring:
            return "the run is over"
        return ""

    # ------------------------------------------------------------------ deaths

    def _on_death(self, keeper: Keeper) -> None:
        here = keeper.here
        self._listen(keeper)
        try:
            _, status, usage = os.wait4(keeper.pid, 0)
        except ChildProcessError:
            return
        self._forget(keeper)
        self._end_orphans()
        if not self.spares.gone(keeper):
            self._explain_death(keeper, status, usage.ru_maxrss)
        keeper.close()
        if here.retiring and here.worker is None and here.standby is None:
            here.retiring = False
            self.tell(messages.Retired(here.name))
        self._pump(here)

    def _forget(self, keeper: Keeper) -> None:
        here = keeper.here
        for fd in (keeper.channel.fileno(), keeper.pidfd):
            try:
                self._selector.unregister(fd)
            except KeyError:
                pass  # its channel was closed before
        if here.worker is keeper:
            self._take_back(here, every=True)
            here.worker = None
        if here.standby is keeper:
            here.standby = None

    def _explain_death(self, keeper: Keeper, status: int, maxrss: int) -> None:
        here, ladder, place = keeper.here, keeper.ladder, (keeper.here.name, keeper.place.name)
        how = ladder.reason if ladder else killing.say_status(status, maxrss)
        why, blamed = keeper.why_ending or how, None
        late: Late = ""
        abnormal = keeper.state != "ending" or status != 0 or ladder is not None
        if untouched := keeper.never_took_up():
            # It died of what the item before left behind.
            self.tell(messages.Revoked(here.name, [untouched.item]))
            keeper.current = None
        if keeper.current is not None:
            self._cut_off(keeper, self._kind_of_death(keeper, status), how)
        elif keeper.left_as_a_spare and status == 0:
            return  # it has opened a device while it collected: one that was started for this slot may do so
        elif keeper.state == "starting" and not here.lost:
            here.held = True
            self.tell(messages.StartFailed(*place, f"{how} {keeper.dumped()[:2000]}".strip()))
        elif ladder is not None and ladder.kind == "device-lost":
            # It waited for work when its device was set aside, and was ended for that: its last item keeps its verdict.
            why, abnormal = how, False
        elif abnormal:
            late = "exit handler" if keeper.left else "finaliser"
            why = f"{how} in {'an exit handler' if keeper.left else 'a fixture finaliser'} after its last item"
            blamed = None if keeper.left or self.interrupting else keeper.last_item
        self.tell(messages.WorkerEnded(*place, why, abnormal, keeper.ran, late, blamed))

    def _kind_of_death(self, keeper: Keeper, status: int) -> messages.How:
        if self.interrupting:
            return "interrupted"
        if keeper.ladder is not None:
            return keeper.ladder.kind
        return "device-lost" if status == signal.SIGTERM and self._is_noticed() else "crashed"

    def _is_noticed(self) -> bool:
        """A node that is taken away sends SIGTERM to all: then a worker died of the notice, not of itself.

        It comes to one process after the other, and a worker may be dead before we hear of it.
        """
        until = time.monotonic() + (NOTICE_PATIENCE if self.rules.term_is_notice else 0.0)
        while not self.noticed and time.monotonic() < until:
            select.select([], [], [], 0.01)
        return self.noticed

    def _cut_off(self, keeper: Keeper, how: messages.How, reason: str) -> None:
        """The attempt did not end by itself."""
        current = keeper.current
        assert current is not None
        keeper.current = None
        place = (keeper.here.name, keeper.place.name, current.item, current.attempt)
        block = keeper.ladder.block if keeper.ladder else keeper.board.block
        seen = {"output": keeper.printed(), "dump": keeper.dumped(), "phase": keeper.board.phase, "block": block}
        self.tell(Ended(*place, how, reason, keeper.ran > 0, **seen))  # type: ignore[arg-type]

    def _end_orphans(self) -> None:
        """Every child of ours that is not a worker was left by a dead one: our workers keep their own orphans."""
        known = {k.pid for k in self._keepers()} | {p.pid for p in self.probes}
        known |= {k.ladder.debugger.pid for k in self._keepers() if k.ladder and k.ladder.debugger}
        strays = [p for p in proctree.children(os.getpid()) if p not in known]
        killing.kill_all({*strays, *(d for p in strays for d in proctree.descendants(p))}, os.getpid())
        for stray in strays:
            killing.reap(stray)

    def _unreapable(self, keeper: Keeper, what: str) -> None:
        """SIGKILL did not end it: it hangs in the kernel. Nothing may wait for it any longer."""
        here = keeper.here
        if self.spares.gone(keeper):
            self._forget(keeper)
            return
        here.lost = bool(here.devices)  # where there is none, nothing is held
        if keeper.current is not None:
            self._cut_off(keeper, "device-lost", f"not ended by SIGKILL: {what}")
        self._forget(keeper)
        self.tell(messages.Unreapable(here.name, what))
        self._pump(here)

    def _end_everything(self) -> None:
        """Now. Used when nobody is left to report to, and when the user insists."""
        killing.end_below()
