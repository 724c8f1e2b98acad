"""The agent: owns the workers of one host. It obeys the controller, enforces deadlines, and never runs user code.

It stands between the controller, which runs the user's hooks and may be slow or die, and the workers, which run the
user's tests and may do anything. When the controller goes away, the agent ends every process of the run and then
itself.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ondol.fleet import wire
from ondol.fleet.agent.keeper import Keeper
from ondol.fleet.agent.launch import Launcher
from ondol.fleet.agent.probe import Probe
from ondol.fleet.starts import Limits, Place, Rules
from ondol.fleet.wire import Message
from ondol.host import killing, proctree


@dataclass
class Berth:
    """A slot on this host: at most one worker, perhaps a second one ready to take over, and what was handed to it."""

    name: str
    env: dict[str, str]
    devices: list[dict[str, Any]]
    worker: Keeper | None = None
    standby: Keeper | None = None
    queue: deque[Message] = field(default_factory=deque)
    generation: int = 0
    retiring: bool = False
    lost: bool = False
    #: A start failed here; the controller decides whether it is worth another one.
    held: bool = False


class Agent:
    """The event loop of one host."""

    def __init__(self, control: wire.Channel, launcher: Launcher, limits: Limits, rules: Rules) -> None:
        self.control = control
        self.launcher = launcher
        self.limits = limits
        self.rules = rules
        self.berths: dict[str, Berth] = {}
        self.probes: list[Probe] = []
        self.leaving = False
        self.interrupting = False
        self.noticed = False
        self._tmpdirs = count(1)
        self._outbox = bytearray()
        self._token = control._token
        self._selector = selectors.DefaultSelector()

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
        self._selector.register(self.control.fileno(), selectors.EVENT_READ, self._on_control)
        self.control.sock.setblocking(False)
        try:
            while not (self.leaving and not self._busy()):
                self._turn()
        finally:
            self._end_everything()
        self._flush(final=True)

    def _turn(self) -> None:
        now = time.monotonic()
        self._selector.modify(self.control.fileno(), self._control_interest(), self._on_control)
        for key, events in self._selector.select(self._patience(now)):
            key.data(events)
        now = time.monotonic()
        for keeper in self._keepers():
            broken = keeper.overdue(now)
            if broken:
                kind = "crashed" if keeper.phase == "deaf" else "timeout"
                keeper.start_ladder(kind, broken, now, dump=keeper.phase != "deaf")
            keeper.climb(now, lambda what, k=keeper: self._unreapable(k, what))  # type: ignore[misc]
        for probe in [p for p in self.probes if p.over(now)]:
            self.probes.remove(probe)
            self.tell({"e": "probe", "device": probe.device, "fault": probe.fault()})
        self._flush()

    def _patience(self, now: float) -> float | None:
        looks = [k.next_look(now) for k in self._keepers()] + [p.next_look() for p in self.probes]
        times = [t for t in looks if t is not None and t != float("inf")]
        return max(0.0, min(times) - now) if times else None

    def _keepers(self) -> list[Keeper]:
        return [k for b in self.berths.values() for k in (b.worker, b.standby) if k is not None]

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
        messages, open_ = self.control.receive_all()
        commands: dict[str, Callable[[Message], None]] = {
            "run": self._cmd_run,
            "revoke": self._cmd_revoke,
            "retire": self._cmd_retire,
            "interrupt": self._cmd_interrupt,
            "finish": self._cmd_finish,
            "kill": self._cmd_kill,
            "probe": self._cmd_probe,
            "lose": self._cmd_lose,
            "resume": self._cmd_resume,
        }
        for message in messages:
            commands[message["c"]](message)
        if not open_:
            self._end_everything()
            os._exit(1)

    def _on_term(self, *_: object) -> None:
        if self.rules.term_is_notice:
            self.noticed = True
            return
        self._end_everything()
        os._exit(1)

    def _cmd_run(self, message: Message) -> None:
        name = message["slot"]
        berth = self.berths.get(name)
        if berth is None:
            berth = self.berths[name] = Berth(name, message["env"], message["devices"])
        berth.queue.append(message)
        self._pump(berth)

    def _cmd_revoke(self, message: Message) -> None:
        berth = self.berths[message["slot"]]
        taken = [m["item"] for m in berth.queue]
        berth.queue.clear()
        self.tell({"e": "revoked", "slot": berth.name, "items": taken})

    def _cmd_retire(self, message: Message) -> None:
        berth = self.berths.get(message["slot"])
        if berth is None or (berth.worker is None and berth.standby is None):
            self.tell({"e": "retired", "slot": message["slot"]})
            return
        berth.retiring = True
        now = time.monotonic()
        for keeper in (berth.worker, berth.standby):
            if keeper is not None and keeper.state in {"idle", "starting"}:
                keeper.end("retired", now)

    def _cmd_interrupt(self, _: Message) -> None:
        """Ctrl-C: running items get KeyboardInterrupt and a moment; idle workers leave."""
        self.interrupting = True
        now = time.monotonic()
        for keeper in self._keepers():
            if keeper.state == "running":
                killing.send(keeper.pid, signal.SIGINT)
                keeper.deadline = now + self.limits.grace
                keeper.phase = "call"
            elif keeper.state != "ending":
                keeper.end("interrupted", now)

    def _cmd_finish(self, _: Message) -> None:
        self.leaving = True
        now = time.monotonic()
        for keeper in self._keepers():
            if keeper.state in {"idle", "starting"}:
                keeper.end("the run is over", now)

    def _cmd_kill(self, _: Message) -> None:
        self.leaving = True
        self._end_everything()

    def _cmd_probe(self, message: Message) -> None:
        self.probes.append(Probe.start(message, time.monotonic()))

    def _cmd_lose(self, message: Message) -> None:
        """The device is set aside: end what runs there; what was only handed over goes back."""
        berth = self.berths.get(message["slot"])
        if berth is None:
            return
        berth.lost = True
        if berth.queue:
            # It waits for a fresh process that nobody will start here any more.
            self._cmd_revoke(message)
        for keeper in (berth.worker, berth.standby):
            if keeper is not None and keeper.ladder is None:
                keeper.start_ladder("device-lost", message["why"], time.monotonic(), dump=False)

    def _cmd_resume(self, message: Message) -> None:
        berth = self.berths[message["slot"]]
        berth.held = False
        self._pump(berth)

    # ------------------------------------------------------------------ workers

    def _launch(self, berth: Berth) -> Keeper:
        berth.generation += 1
        name = f"{berth.name.replace(':', '-').replace('/', '-')}-{berth.generation}"
        tmpdir = os.path.join(self.rules.tmpdir, str(next(self._tmpdirs)))  # short: there will be sockets in it
        os.makedirs(tmpdir, mode=0o700, exist_ok=True)
        for link, target in self.rules.links.items():
            with suppress(OSError):  # what it leads to is a cache: without it the worker is colder
                os.symlink(target, os.path.join(tmpdir, link))
        place = Place(name, berth.name, berth.generation, berth.env, tmpdir, berth.devices, self.rules.hygiene)
        started = self.launcher.start(place, self._own_fds())
        keeper = Keeper(started, place, self.limits, time.monotonic())
        self._selector.register(keeper.channel.fileno(), selectors.EVENT_READ, lambda _: self._on_worker(berth, keeper))
        self._selector.register(keeper.pidfd, selectors.EVENT_READ, lambda _: self._on_death(berth, keeper))
        return keeper

    def _own_fds(self) -> list[int]:
        fds = [self.control.fileno()]
        # The selector's own descriptor would keep the others' sockets alive in the child.
        if hasattr(self._selector, "fileno"):
            fds.append(self._selector.fileno())
        for keeper in self._keepers():
            fds += [keeper.channel.fileno(), keeper.pidfd, keeper.dump, *keeper.capture]
        return fds

    def _pump(self, berth: Berth) -> None:
        """Give the berth's worker its next item, or make a worker first."""
        if not berth.queue or berth.lost or berth.retiring or berth.held or self.noticed:
            return
        if berth.worker is None:
            berth.worker, berth.standby = berth.standby, None
        if berth.worker is None:
            berth.worker = self._launch(berth)
        keeper, message = berth.worker, berth.queue[0]
        if keeper.state != "idle":
            return
        now = time.monotonic()
        if keeper.ran and (message.get("fresh") or message.get("runtime", "") != keeper.runtime):
            why = "a fresh process is needed" if message.get("fresh") else "another runtime is needed"
            keeper.end(why, now)
            return
        if keeper.ran and not message.get("prepare") and message["item"] != keeper.expects:
            keeper.clear_for(message, now)
            return
        berth.queue.popleft()
        place = {"slot": berth.name, "worker": keeper.place.name, "warm": keeper.ran > 0}
        self.tell({"e": "started", "item": message["item"], "attempt": message["attempt"], **place})
        # Before it begins: an item that kills us at once would otherwise have run without anybody knowing.
        self._flush()
        try:
            keeper.run(message, now)
        except OSError:
            pass  # it died between two items; its pidfd says so, and the attempt is its last
        if message.get("last") and berth.queue and berth.standby is None:
            berth.standby = self._launch(berth)

    def _on_worker(self, berth: Berth, keeper: Keeper) -> None:
        messages, open_ = keeper.read()
        keeper.heard(time.monotonic())
        for message in messages:
            self._from_worker(berth, keeper, message)
        if not open_:
            self._selector.unregister(keeper.channel.fileno())
            if proctree.alive(keeper.pid) and keeper.state != "ending" and keeper.ladder is None:
                keeper.went_deaf(time.monotonic())

    def _from_worker(self, berth: Berth, keeper: Keeper, message: Message) -> None:
        kind = message["m"]
        now = time.monotonic()
        if kind in {"hello", "cleared"}:
            if keeper.state in {"starting", "clearing"}:
                keeper.state = "idle"
                keeper.deadline = None
            if kind == "hello":
                self.tell({"e": "worker", "slot": berth.name, "worker": keeper.place.name, "pid": keeper.pid})
            if self.leaving or self.interrupting or berth.retiring:
                keeper.end("the run is over", now)
            self._pump(berth)
        elif kind == "reports":
            if any(r.get("when") == "call" or r.get("outcome") != "passed" for r in message["data"]):
                keeper.in_teardown(now)
            self.tell({"e": "reports", **_of(message), "data": message["data"]})
        elif kind in {"late", "warning", "broken"}:
            self.tell({"e": kind, "worker": keeper.place.name, "slot": berth.name, **message})
        elif kind == "left":
            keeper.left = True
        elif kind == "done":
            self._done(berth, keeper, message, now)

    def _done(self, berth: Berth, keeper: Keeper, message: Message, now: float) -> None:
        current, keeper.current = keeper.current or {}, None
        keeper.last_item = current["item"]
        warm, keeper.ran = keeper.ran > 0, message["ran"]
        if self.interrupting and message.get("escaped") == "KeyboardInterrupt":
            how: Message = {"how": "interrupted"}
        else:
            how = {"how": "done", **{k: message.get(k) for k in ("dirt", "poison", "exit", "escaped", "prepared")}}
        garbage, keeper.channel.decoder.garbage = keeper.channel.decoder.garbage, 0
        how["reports"] = message.get("reports", [])
        self._ended(berth, keeper, current, {**how, "warm": warm, "garbage": garbage})
        keeper.state = "idle"
        keeper.deadline = None
        why = self._why_recycle(keeper, message, current)
        if why:
            keeper.end(why, now)
        else:
            self._pump(berth)

    def _why_recycle(self, keeper: Keeper, message: Message, current: Message) -> str:
        if current.get("last"):
            return "it ran alone"
        if message.get("poison"):
            return f"device context poisoned: {message['poison']}"
        if message.get("dirt") and self.rules.hygiene == "recycle":
            return f"dirt: {message['dirt'][0][0]}"
        if self.rules.recycle_after and keeper.ran >= self.rules.recycle_after:
            return f"ran {keeper.ran} items"
        berth = self.berths[keeper.place.slot]
        if self.leaving or self.interrupting or berth.retiring:
            return "the run is over"
        return ""

    def _ended(self, berth: Berth, keeper: Keeper, current: Message, how: Message) -> None:
        place = {"slot": berth.name, "worker": keeper.place.name}
        self.tell({"e": "ended", "item": current["item"], "attempt": current["attempt"], **place, **how})

    # ------------------------------------------------------------------ deaths

    def _on_death(self, berth: Berth, keeper: Keeper) -> None:
        messages, _ = keeper.read()
        for message in messages:
            self._from_worker(berth, keeper, message)
        try:
            _, status, usage = os.wait4(keeper.pid, 0)
        except ChildProcessError:
            return
        self._forget(berth, keeper)
        self._end_orphans()
        self._explain_death(berth, keeper, status, usage.ru_maxrss)
        keeper.close()
        if berth.retiring and berth.worker is None and berth.standby is None:
            berth.retiring = False
            self.tell({"e": "retired", "slot": berth.name})
        self._pump(berth)

    def _forget(self, berth: Berth, keeper: Keeper) -> None:
        for fd in (keeper.channel.fileno(), keeper.pidfd):
            try:
                self._selector.unregister(fd)
            except KeyError:
                pass  # its channel was closed before
        if berth.worker is keeper:
            berth.worker = None
        if berth.standby is keeper:
            berth.standby = None

    def _explain_death(self, berth: Berth, keeper: Keeper, status: int, maxrss: int) -> None:
        how = killing.say_status(status, maxrss)
        why = keeper.why_ending or how
        abnormal = keeper.state != "ending" or status != 0
        if keeper.current is not None:
            ladder = keeper.ladder
            kind = ladder.kind if ladder else "crashed"
            if self.noticed and not ladder and status == signal.SIGTERM:
                kind = "device-lost"  # it died of the notice, not of itself
            if self.interrupting:
                kind = "interrupted"
            reason = ladder.reason if ladder else how
            output = {"output": keeper.printed(), "dump": keeper.dumped(), "phase": keeper.died_in()}
            self._ended(
                berth, keeper, keeper.current, {"how": kind, "reason": reason, **output, "warm": keeper.ran > 0}
            )
        elif keeper.state == "starting" and not berth.lost:
            reason = keeper.ladder.reason if keeper.ladder else how
            berth.held = True
            text = f"{reason} {keeper.dumped()[:2000]}".strip()
            self.tell({"e": "start-failed", "slot": berth.name, "worker": keeper.place.name, "why": text})
        elif keeper.ladder is not None and keeper.ladder.kind == "device-lost":
            # It waited for work when its device was set aside, and was ended for that: its last item keeps its verdict.
            why, abnormal = keeper.ladder.reason, False
        elif abnormal:
            how = keeper.ladder.reason if keeper.ladder else how
            why = f"{how} in {'an exit handler' if keeper.left else 'a fixture finaliser'} after its last item"
            if not keeper.left and keeper.last_item is not None and not self.interrupting:
                self.tell({"e": "late-death", "item": keeper.last_item, "worker": keeper.place.name, "why": why})
        end = {"slot": berth.name, "worker": keeper.place.name, "why": why, "abnormal": abnormal, "ran": keeper.ran}
        self.tell({"e": "worker-ended", **end})

    def _end_orphans(self) -> None:
        """Every child of ours that is not a worker was left by a dead one: our workers keep their own orphans."""
        known = {k.pid for k in self._keepers()} | {p.pid for p in self.probes}
        known |= {k.ladder.debugger.pid for k in self._keepers() if k.ladder and k.ladder.debugger}
        strays = [p for p in proctree.children(os.getpid()) if p not in known]
        killing.kill_all({*strays, *(d for p in strays for d in proctree.descendants(p))}, os.getpid())
        for stray in strays:
            _reap(stray)

    def _unreapable(self, keeper: Keeper, what: str) -> None:
        """SIGKILL did not end it: it hangs in the kernel. Nothing may wait for it any longer."""
        berth = self.berths[keeper.place.slot]
        berth.lost = True
        if keeper.current is not None:
            how = {
                "how": "device-lost",
                "reason": f"not ended by SIGKILL: {what}",
                "dump": keeper.dumped(),
                "warm": True,
            }
            self._ended(berth, keeper, keeper.current, how)
        self._forget(berth, keeper)
        self.tell({"e": "unreapable", "slot": berth.name, "why": what})

    def _end_everything(self) -> None:
        """Now. Used when nobody is left to report to, and when the user insists."""
        own = os.getpid()
        for _ in range(50):
            below = proctree.descendants(own)
            if not below:
                return
            killing.kill_all(below, own)
            for pid in proctree.children(own):
                _reap(pid)


def _of(message: Message) -> Message:
    return {"item": message["item"], "attempt": message["attempt"]}


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
