"""The controller: turns events of the agent into decisions, records them in the journal, and only then shows them.

It never runs a test and never touches a device. What it must decide is decided by pure modules (`schedule`, `verdict`,
`quarantine`); what is shown goes through `Show`, which the pytest plugin implements.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ondol.fleet import worker_names
from ondol.fleet.controller.caches import Caches, NoCaches
from ondol.fleet.controller.losses import Losses
from ondol.fleet.controller.nodes import Nodes
from ondol.fleet.devices import Fleet
from ondol.fleet.interrupts import Interrupts
from ondol.fleet.journal import Journal
from ondol.fleet.model import Action, Retire, Revoke, Run, Unrunnable, node_of
from ondol.fleet.outcome import Gathered, attempt_of, sections_of, text_of
from ondol.fleet.quarantine import Ledger
from ondol.fleet.schedule import Scheduler
from ondol.fleet.verdict import Again, Attempt, Cause, Final, JudgeRecord, Policy, Tally, Verdict, judge, note_judgement
from ondol.fleet.wire import Message

#: After so many items with a mean below so many seconds, so many are handed out at a time.
MANY, SHORT, DEEP = 10, 0.02, 8


@dataclass(frozen=True)
class Planned:
    """One item as the run's record names it."""

    nodeid: str
    timeout: float = 0.0
    #: A worker never holds two of them: loaders and drivers cache per process.
    runtime: str = ""


class Link(Protocol):
    """The way to one agent, or to the agents of all nodes."""

    @property
    def gone(self) -> bool:
        """Nobody is at the other end any more."""

    def send(self, message: Message) -> None:
        """Never raises and never waits for somebody who does not listen."""

    def receive(self, timeout: float | None, also: int | None = None) -> list[Message]:
        """Events that have arrived, waiting for one or for the descriptor `also` at most so long."""

    def bury(self) -> str:
        """End what is left at the other end; says how it ended."""


class Show(Protocol):
    """Where results become visible."""

    def result(self, item: int, attempts: list[Gathered], final: Final) -> None: ...
    def late(self, item: int, report: dict[str, Any]) -> None: ...
    def late_death(self, item: int, why: str) -> None: ...
    def warning(self, data: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...
    def waiting(self, what: str) -> None: ...
    def moved(self, controller: Controller) -> None: ...
    def wants_to_stop(self) -> str: ...


@dataclass
class Settings:
    """What the user chose about judging and stopping."""

    policy: Policy = field(default_factory=Policy)
    hygiene: str = "report"
    session_timeout: float = 0.0
    #: `-x` and friends: show every result before the next item is handed out.
    careful: bool = False
    probe_timeout: float = 30.0
    caches: Caches = field(default_factory=NoCaches)
    #: The same for all workers of the run, and for no other run.
    uid: str = ""


class Controller:
    """One run."""

    def __init__(
        self,
        items: list[Planned],
        fleet: Fleet,
        scheduler: Scheduler,
        start_link: Callable[[], Link],
        journal: Journal,
        show: Show,
        settings: Settings,
        interrupts: Interrupts,
        prepares: dict[int, int] | None = None,
    ) -> None:
        self.items = items
        self.fleet = fleet
        self.scheduler = scheduler
        self.journal = journal
        self.show = show
        self.settings = settings
        self.interrupts = interrupts
        self._interrupts_seen = 0
        #: Work that prepares → the item that it prepares.
        self.prepares = prepares or {}
        self.prepared: dict[int, Any] = {}
        self.ledger = Ledger()
        self.record = JudgeRecord()
        self.tally = Tally(planned=len(items))
        self.finals: dict[int, Final] = {}
        self.attempts: dict[int, list[Gathered]] = {}
        self.judged: dict[int, list[Attempt]] = {}
        self.current: dict[str, Gathered] = {}
        self.seconds: dict[int, float] = {}
        self._spent = 0.0
        self.workers: dict[str, int] = {}
        #: Slot → attempts that ended on it.
        self.done_on: Counter[str] = Counter()
        self.stop_reason = ""
        self.exit_request: tuple[str, int | None] | None = None
        self.deaths: list[str] = []
        self.dirty: list[tuple[int, str, str]] = []
        self.start_link = start_link
        self._began = time.monotonic()
        self._to_show: deque[int] = deque()
        self.losses = Losses(self)
        self.nodes = Nodes(self)
        self.link = start_link()

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Until every item has its verdict."""
        while not self.scheduler.finished:
            if not self.stop_reason:
                self.act(self.scheduler.step())
            if self.scheduler.finished:
                break
            self._listen()
            self._show_some()
            self._check_limits()
            if self._interrupted_twice():
                self.abandon()
                return
        self.show_all()
        self._finish()

    def _listen(self) -> None:
        timeout = 0.0 if self._to_show else self._patience()
        for message in self.link.receive(timeout, self.interrupts.fileno()):
            self._handle(message)
        if self.link.gone:
            self.losses.replace_agent()
        self.show.moved(self)

    def _interrupted_twice(self) -> bool:
        """Obeys the first Ctrl-C; True for the second."""
        if self.interrupts.count > self._interrupts_seen:
            self.interrupts.acknowledge()
            self._interrupts_seen = self.interrupts.count
            if self.stop_reason != "interrupted":
                self.stop_reason = ""
                self.interrupt()
        return self.interrupts.count > 1

    def _patience(self) -> float:
        left = self._time_left()
        return 0.5 if left is None else max(0.0, min(0.5, left))

    def _time_left(self) -> float | None:
        limit = self.settings.session_timeout
        return limit - (time.monotonic() - self._began) if limit else None

    def _check_limits(self) -> None:
        left = self._time_left()
        if left is not None and left <= 0 and not self.stop_reason:
            self.stop("session-timeout")
            for state in self.scheduler.slots.values():
                if state.handed:
                    self.link.send({"c": "lose", "slot": state.slot.name, "why": "the run's deadline passed"})

    def _show_some(self) -> None:
        if self._to_show:
            self._show_one(self._to_show.popleft())

    def show_all(self) -> None:
        while self._to_show:
            self._show_one(self._to_show.popleft())

    def _show_one(self, item: int) -> None:
        attempts = self.attempts.get(item, [])
        self.show.result(item, attempts, self.finals[item])
        for warning in attempts[-1].warnings if attempts else []:
            self.show.warning(warning)
        wish = self.show.wants_to_stop()
        if wish:
            self.stop(wish)

    # ------------------------------------------------------------------ carrying out

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Run):
                self._send_run(action)
            elif isinstance(action, Revoke):
                self.link.send({"c": "revoke", "slot": action.slot})
            elif isinstance(action, Retire):
                self.link.send({"c": "retire", "slot": action.slot})
            elif isinstance(action, Unrunnable):
                self.settle(action.work, Final(Verdict.DEVICE_LOST, why=action.why))

    def _send_run(self, run: Run) -> None:
        target = self.prepares.get(run.work, run.work)
        attempt = len(self.judged.get(run.work, [])) + 1
        devices = [d for d in self.fleet.devices if d.name in run.devices]
        self.link.send(
            {
                "c": "run",
                "slot": run.slot,
                "item": run.work,
                "target": target,
                "nodeid": self.items[target].nodeid,
                "hint_nodeid": "" if run.hint is None else self.items[run.hint].nodeid,
                "attempt": attempt,
                "fresh": run.fresh,
                "last": run.last,
                "hint": run.hint,
                "more": run.more,
                "timeout": self.items[target].timeout,
                "runtime": "" if run.work in self.prepares else self.items[target].runtime,
                "prepare": run.work in self.prepares,
                "prepared": self.prepared.get(run.work),
                "env": {
                    **self.fleet.environment(run.devices),
                    **worker_names.environment(run.slot, self.scheduler.slots, self.settings.uid),
                },
                "devices": [{"name": d.name, "kind": d.kind, "visible": d.visible} for d in devices],
            }
        )

    def stop(self, reason: str) -> None:
        """Hand out nothing more."""
        if self.stop_reason:
            return
        self.stop_reason = reason
        self.act(self.scheduler.stop())

    def interrupt(self) -> None:
        """Ctrl-C or SIGTERM, the first time: stop, end what runs, report."""
        self.stop("interrupted")
        self.link.send({"c": "interrupt"})

    def abandon(self) -> None:
        """The second time: now. What ran is recorded as interrupted."""
        self.link.send({"c": "kill"})
        self.link.bury()
        for gathered in list(self.current.values()):
            self.attempt_ended(gathered, {"how": "interrupted", "reason": "interrupted while it ran"})
        self._close_books("interrupted")

    # ------------------------------------------------------------------ events of the agent

    def _handle(self, message: Message) -> None:
        name = "on_" + message["e"].replace("-", "_")
        for part in (self.losses, self.nodes):
            if hasattr(part, name):
                getattr(part, name)(message)
                return
        getattr(self, "_" + name)(message)

    def _on_worker(self, message: Message) -> None:
        self.workers[message["slot"]] = self.workers.get(message["slot"], 0) + 1
        for device in self.devices_of(message["slot"]):
            self.ledger.started(device)
        self.journal.write({"e": "worker", **_pick(message, "slot", "worker", "pid")})

    def _on_started(self, message: Message) -> None:
        devices = self.devices_of(message["slot"])
        gathered = Gathered(
            message["item"],
            message["attempt"],
            message["slot"],
            message["worker"],
            "+".join(devices),
            message["warm"],
            time.monotonic(),
        )
        self.current[message["slot"]] = gathered
        if message["item"] not in self.prepares:
            self.attempts.setdefault(message["item"], []).append(gathered)
            record = {"device": gathered.device, **_pick(message, "item", "attempt", "slot", "worker", "warm")}
            self.journal.write({"e": "start", **record})

    def _on_reports(self, message: Message) -> None:
        gathered = self._gathered(message)
        if gathered is not None:
            gathered.reports += message["data"]

    def _gathered(self, message: Message) -> Gathered | None:
        for gathered in self.current.values():
            if (gathered.item, gathered.number) == (message["item"], message["attempt"]):
                return gathered
        return None

    def _on_warning(self, message: Message) -> None:
        """Shown with its item: an earlier item may still wait to be shown."""
        gathered = self._gathered(message)
        if gathered is None:
            self.show.warning(message["data"])
        else:
            gathered.warnings.append(message["data"])

    def _on_late(self, message: Message) -> None:
        """A wider fixture's finaliser failed after its last item had its verdict."""
        item = message["item"]
        self.journal.write({"e": "late", "item": item, "text": text_of(message["data"])[:4000]})
        self.show.late(item, message["data"])
        self._worsen(item, Final(Verdict.ERROR, why="a fixture's finaliser failed after it"))

    def _on_late_death(self, message: Message) -> None:
        """The worker died in a wider fixture's finaliser, after its last item had its verdict."""
        self.show.late_death(message["item"], message["why"])
        self._worsen(message["item"], Final(Verdict.CRASHED, why=f"worker {message['worker']}: {message['why']}"))

    def _worsen(self, item: int, worse: Final) -> None:
        """A verdict may get worse after it was given, never better; it is still one verdict."""
        final = self.finals.get(item)
        if final is None or final.verdict.bad:
            return
        self.tally.counts[final.verdict] -= 1
        self.tally.add(worse)
        self.finals[item] = worse
        verdict = {"item": item, "verdict": worse.verdict.value, "flaky": False, "why": worse.why}
        self.journal.write({"e": "verdict", **verdict})

    def _on_broken(self, message: Message) -> None:
        self.show.note(f"worker {message['worker']} broke: {message['text']}")

    def _on_ended(self, message: Message) -> None:
        gathered = self.current.pop(message["slot"])
        self.done_on[message["slot"]] += 1
        gathered.reports += message.pop("reports", [])
        self.scheduler.ended(message["slot"], message["item"])
        if message["item"] in self.prepares:
            self.prepare_ended(gathered, message)
        else:
            self.attempt_ended(gathered, message)
        # The next item is on its way before anything is shown; with -x the showing may be what stops it.
        if self.settings.careful:
            self.show_all()
        if not self.stop_reason:
            self.act(self.scheduler.step())

    def prepare_ended(self, gathered: Gathered, ending: Message) -> None:
        target = self.prepares[gathered.item]
        self.scheduler.settle(gathered.item)
        if ending["how"] == "done" and not ending.get("escaped"):
            self.prepared[target] = ending.get("prepared")
            return
        if not self.scheduler.drop(target):
            return
        verdict = {"crashed": Verdict.CRASHED, "timeout": Verdict.TIMEOUT, "interrupted": Verdict.NOT_RUN}
        final = Final(verdict.get(ending["how"], Verdict.ERROR), why="its preparation failed")
        failed = Gathered(target, 1, gathered.slot, gathered.worker, ending=dict(ending))
        failed.text = str(ending.get("escaped") or ending.get("reason") or "")
        self.attempts[target] = [failed]
        start = {"item": target, "attempt": 1, "slot": gathered.slot, "worker": gathered.worker, "device": ""}
        self.journal.write({"e": "start", **start, "warm": False})
        self._journal_end(failed, attempt_of(failed))
        self.settle(target, final)

    def attempt_ended(self, gathered: Gathered, ending: Message) -> None:
        gathered.ending = dict(ending)
        gathered.text = "\n".join(text_of(r) for r in gathered.reports if r.get("outcome") == "failed")
        caches = self.settings.caches
        attempt = attempt_of(gathered, dirt_fails=self.settings.hygiene == "fail", cache_fault=caches.fault)
        if ending["how"] == "device-lost" and self.stop_reason == "session-timeout":
            attempt = Attempt(Verdict.TIMEOUT, Cause.INTERRUPTED, reason="the run's deadline passed while it ran")
        item = gathered.item
        attempts = self.judged.setdefault(item, [])
        attempts.append(attempt)
        self.dirty += [(item, kind, what) for kind, what in ending.get("dirt") or []]
        if ending.get("garbage"):
            self.dirty.append((item, "descriptor", f"wrote {ending['garbage']} bytes to the worker's event channel"))
        if ending.get("exit"):
            self.exit_request = (ending["exit"][0], ending["exit"][1])
            self.stop("exit")
        self._journal_end(gathered, attempt)
        self.losses.blame(gathered, attempt)
        decision = judge(attempts, self.settings.policy, self.record)
        if isinstance(decision, Again) and not self.stop_reason:
            if attempt.cause is Cause.CACHE:
                self._heal(gathered)
            self.scheduler.repeat(item, decision.avoid)
            return
        final = decision if isinstance(decision, Final) else Final(attempt.outcome, why=attempt.reason)
        note_judgement(attempts, final, self.record)
        self.settle(item, final)

    def _heal(self, gathered: Gathered) -> None:
        if node_of(gathered.slot):
            # The cache is the node's: whoever started the agent there mends it before he passes on the next item.
            self.link.send({"c": "heal", "slot": gathered.slot, "item": gathered.item, "text": gathered.text})
            return
        self._on_healed({"item": gathered.item, "what": self.settings.caches.heal(gathered.text)})

    def _on_healed(self, message: Message) -> None:
        if message["what"]:
            self.journal.write({"e": "healed", "item": message["item"], "what": message["what"]})
            self.show.note(f"{self.items[message['item']].nodeid}: {message['what']}")

    def _journal_end(self, gathered: Gathered, attempt: Attempt) -> None:
        ending = gathered.ending
        phases = [_pick(r, "when", "outcome", "duration") for r in gathered.reports]
        event: Message = {
            "e": "end",
            "item": gathered.item,
            "attempt": gathered.number,
            "outcome": attempt.outcome.value,
            "cause": attempt.cause.value,
            "reason": attempt.reason,
            "seconds": round(gathered.seconds, 6),
            "phases": phases,
        }
        if not attempt.good:
            event["text"] = gathered.text[:65536]
            event["dump"] = ending.get("dump", "")[:65536]
            event["output"] = ending.get("output") or sections_of(gathered)
        if ending.get("dirt"):
            event["dirt"] = ending["dirt"]
        self.journal.write(event)

    # ------------------------------------------------------------------ verdicts

    def refuse(self, work: int, final: Final) -> None:
        """An item that was never given to the scheduler: no set of devices here can run it."""
        self.settle(work, final)

    def settle(self, work: int, final: Final) -> None:
        self.scheduler.settle(work)
        if work in self.prepares:
            return
        self.finals[work] = final
        self.tally.add(final)
        attempts = self.attempts.get(work, [])
        if attempts and final.verdict in {Verdict.PASSED, Verdict.FAILED, Verdict.XFAILED, Verdict.XPASSED}:
            self.seconds[work] = attempts[-1].seconds
            self._hand_out_more_of_short_ones()
        verdict = {"item": work, "verdict": final.verdict.value, "flaky": final.flaky, "why": final.why}
        self.journal.write({"e": "verdict", **verdict})
        self._to_show.append(work)

    def _hand_out_more_of_short_ones(self) -> None:
        """Items of a millisecond would wait for the next one to arrive; what is handed out can be revoked."""
        self._spent += self.seconds[next(reversed(self.seconds))]
        if not self.settings.careful and len(self.seconds) >= MANY:
            self.scheduler.depth = DEEP if self._spent / len(self.seconds) < SHORT else 2

    # ------------------------------------------------------------------ devices

    def devices_of(self, slot: str) -> tuple[str, ...]:
        if slot in self.scheduler.running:
            return self.scheduler.running[slot].devices
        state = self.scheduler.slots.get(slot)
        return (state.slot.device,) if state and state.slot.device else ()

    def _on_revoked(self, message: Message) -> None:
        self.scheduler.revoked(message["slot"], message["items"])

    def _on_retired(self, message: Message) -> None:
        self.scheduler.retired(message["slot"])

    def _on_worker_ended(self, message: Message) -> None:
        self.journal.write({"e": "worker-ended", **_pick(message, "slot", "worker", "why", "abnormal", "ran")})
        if message["abnormal"] and "after its last item" in message["why"]:
            self.deaths.append(f"worker {message['worker']}: {message['why']}")

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        """Let the workers leave, hear their last words, and account for every item."""
        self.link.send({"c": "finish", "good": not self.tally.bad})
        while not self.link.gone:
            for message in self.link.receive(1.0, self.interrupts.fileno()):
                self._handle(message)
            if self._interrupted_twice():
                self.link.send({"c": "kill"})
        how = self.link.bury()
        if "status 0" not in how and not self.stop_reason:
            self.journal.write({"e": "agent-died", "why": how})
        self._close_books(self.stop_reason)

    def _close_books(self, reason: str) -> None:
        for work in range(len(self.items)):
            if work in self.finals:
                continue
            judged = self.judged.get(work)
            if judged and judged[-1].cause is not Cause.INTERRUPTED:
                self.settle(work, Final(judged[-1].outcome, why=judged[-1].reason))
            else:
                why = judged[-1].reason if judged else f"never started: {reason or 'nothing could run it'}"
                self.settle(work, Final(Verdict.NOT_RUN, why=why))
        self.show_all()


def _pick(data: Message, *names: str) -> Message:
    return {name: data.get(name) for name in names}
