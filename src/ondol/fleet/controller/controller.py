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

from ondol.fleet import journal, messages, worker_names
from ondol.fleet.controller.caches import Caches, NoCaches
from ondol.fleet.controller.losses import Losses
from ondol.fleet.controller.nodes import Nodes
from ondol.fleet.devices import Fleet
from ondol.fleet.interrupts import Interrupts
from ondol.fleet.journal import Journal
from ondol.fleet.messages import AgentEvent, Buried, Ended, Event, RunItem, ToNode, never
from ondol.fleet.model import Action, Retire, Revoke, Run, Unrunnable, node_of
from ondol.fleet.outcome import Gathered, attempt_of, sections_of, text_of
from ondol.fleet.quarantine import Ledger
from ondol.fleet.schedule import Scheduler
from ondol.fleet.verdict import Again, Attempt, Cause, Final, JudgeRecord, Policy, Tally, Verdict, judge, note_judgement

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

    def send(self, message: ToNode) -> None:
        """Never raises and never waits for somebody who does not listen."""

    def receive(self, timeout: float | None, also: int | None = None) -> list[Event]:
        """Events that have arrived, waiting for one or for the descriptor `also` at most so long."""

    def bury(self) -> Buried:
        """End what is left at the other end."""


class Show(Protocol):
    """Where results become visible."""

    def result(self, item: int, attempts: list[Gathered], final: Final) -> None: ...
    def late(self, item: int, report: dict[str, Any]) -> None: ...
    def late_death(self, item: int, why: str) -> None: ...
    def warning(self, data: dict[str, Any]) -> None: ...
    def output(self, worker: str, text: str) -> None: ...
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
        for event in self.link.receive(timeout, self.interrupts.fileno()):
            self._handle(event)
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
                    self.link.send(messages.Lose(state.slot.name, "the run's deadline passed"))

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
                self.link.send(messages.Revoke(action.slot))
            elif isinstance(action, Retire):
                self.link.send(messages.Retire(action.slot))
            elif isinstance(action, Unrunnable):
                self.settle(action.work, Final(Verdict.DEVICE_LOST, why=action.why))

    def _send_run(self, run: Run) -> None:
        target = self.prepares.get(run.work, run.work)
        devices = [d for d in self.fleet.devices if d.name in run.devices]
        prepares = run.work in self.prepares
        self.link.send(
            RunItem(
                run.slot,
                run.work,
                len(self.judged.get(run.work, [])) + 1,
                target,
                self.items[target].nodeid,
                fresh=run.fresh,
                last=run.last,
                hint=run.hint,
                hint_nodeid="" if run.hint is None else self.items[run.hint].nodeid,
                more=run.more,
                timeout=self.items[target].timeout,
                runtime="" if prepares else self.items[target].runtime,
                prepare=prepares,
                prepared=self.prepared.get(run.work),
                env={
                    **self.fleet.environment(run.devices),
                    **worker_names.environment(run.slot, self.scheduler.slots, self.settings.uid),
                },
                devices=[{"name": d.name, "kind": d.kind, "visible": d.visible} for d in devices],
            )
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
        self.link.send(messages.Interrupt())

    def abandon(self) -> None:
        """The second time: now. What ran is recorded as interrupted."""
        self.link.send(messages.Kill())
        self.link.bury()
        for gathered in list(self.current.values()):
            self.attempt_ended(gathered, gathered.cut_off("interrupted", "interrupted while it ran"))
        self._close_books("interrupted")

    # ------------------------------------------------------------------ events of the agent

    def _handle(self, event: Event) -> None:
        if isinstance(event, AgentEvent):
            self._hear(event)
        else:
            self.nodes.hear(event)

    def _hear(self, event: AgentEvent) -> None:  # noqa: C901 - one line per event
        match event:
            case messages.WorkerUp():
                self._on_worker(event)
            case messages.Started():
                self._on_started(event)
            case messages.Reports():
                gathered = self._gathered(event)
                if gathered is not None:
                    gathered.reports += event.data
            case messages.Ended():
                self._on_ended(event)
            case messages.Warned():
                self._on_warning(event)
            case messages.LateReport():
                self._on_late(event)
            case messages.Output():
                self.show.output(event.worker, event.text)
            case messages.Broken():
                self.show.note(f"worker {event.worker} broke: {event.text}")
            case messages.Revoked():
                self.scheduler.revoked(event.slot, list(event.items))
            case messages.Retired():
                self.scheduler.retired(event.slot)
            case messages.WorkerEnded():
                self._on_worker_ended(event)
            case messages.Healed():
                self._on_healed(event)
            case messages.StartFailed():
                self.losses.start_failed(event)
            case messages.Unreapable():
                self.losses.unreapable(event)
            case messages.Probed():
                self.losses.probed(event)
            case messages.Pong():
                pass  # it was heard: that was all
            case _:
                never(event)

    def _on_worker(self, event: messages.WorkerUp) -> None:
        self.workers[event.slot] = self.workers.get(event.slot, 0) + 1
        for device in self.devices_of(event.slot):
            self.ledger.started(device)
        self.journal.write(journal.Worker(*event))

    def _on_started(self, event: messages.Started) -> None:
        device = "+".join(self.devices_of(event.slot))
        gathered = Gathered(event.item, event.attempt, event.slot, event.worker, device, event.warm, time.monotonic())
        self.current[event.slot] = gathered
        if event.item not in self.prepares:
            self.attempts.setdefault(event.item, []).append(gathered)
            self._journal_start(gathered)

    def _journal_start(self, gathered: Gathered) -> None:
        it = gathered
        self.journal.write(journal.Start(it.item, it.number, it.slot, it.worker, it.device, it.warm))

    def _gathered(self, event: messages.Reports | messages.Warned) -> Gathered | None:
        for gathered in self.current.values():
            if (gathered.item, gathered.number) == (event.item, event.attempt):
                return gathered
        return None

    def _on_warning(self, event: messages.Warned) -> None:
        """Shown with its item: an earlier item may still wait to be shown."""
        gathered = self._gathered(event)
        if gathered is None:
            self.show.warning(event.data)
        else:
            gathered.warnings.append(event.data)

    def _on_late(self, event: messages.LateReport) -> None:
        """A wider fixture's finaliser failed after its last item had its verdict."""
        self.journal.write(journal.Late(event.item, text_of(event.data)[:4000]))
        self.show.late(event.item, event.data)
        self._worsen(event.item, Final(Verdict.ERROR, why="a fixture's finaliser failed after it"))

    def _worsen(self, item: int, worse: Final) -> None:
        """A verdict may get worse after it was given, never better; it is still one verdict."""
        final = self.finals.get(item)
        if final is None or final.verdict.bad:
            return
        self.tally.counts[final.verdict] -= 1
        self.tally.add(worse)
        self.finals[item] = worse
        self.journal.write(journal.Verdict(item, worse.verdict.value, False, worse.why))

    def _on_ended(self, event: Ended) -> None:
        gathered = self.current.pop(event.slot)
        self.done_on[event.slot] += 1
        gathered.reports += event.reports
        self.scheduler.ended(event.slot, event.item)
        if event.item in self.prepares:
            self.prepare_ended(gathered, event)
        else:
            self.attempt_ended(gathered, event)
        # The next item is on its way before anything is shown; with -x the showing may be what stops it.
        if self.settings.careful:
            self.show_all()
        if not self.stop_reason:
            self.act(self.scheduler.step())

    def prepare_ended(self, gathered: Gathered, ending: Ended) -> None:
        target = self.prepares[gathered.item]
        self.scheduler.settle(gathered.item)
        if ending.how == "done" and not ending.escaped:
            self.prepared[target] = ending.prepared
            return
        if not self.scheduler.drop(target):
            return
        verdict = {"crashed": Verdict.CRASHED, "timeout": Verdict.TIMEOUT, "interrupted": Verdict.NOT_RUN}
        final = Final(verdict.get(ending.how, Verdict.ERROR), why="its preparation failed")
        failed = Gathered(target, 1, gathered.slot, gathered.worker, ending=ending)
        failed.text = ending.escaped or ending.reason
        self.attempts[target] = [failed]
        self._journal_start(failed)
        self._journal_end(failed, attempt_of(failed))
        self.settle(target, final)

    def attempt_ended(self, gathered: Gathered, ending: Ended) -> None:
        gathered.ending = ending
        gathered.elapsed = time.monotonic() - gathered.started
        gathered.text = "\n".join(text_of(r) for r in gathered.reports if r.get("outcome") == "failed")
        caches = self.settings.caches
        attempt = attempt_of(gathered, dirt_fails=self.settings.hygiene == "fail", cache_fault=caches.fault)
        if ending.how == "device-lost" and self.stop_reason == "session-timeout":
            attempt = Attempt(Verdict.TIMEOUT, Cause.INTERRUPTED, reason="the run's deadline passed while it ran")
        item = gathered.item
        attempts = self.judged.setdefault(item, [])
        attempts.append(attempt)
        self.dirty += [(item, kind, what) for kind, what in ending.dirt]
        if ending.garbage:
            self.dirty.append((item, "descriptor", f"wrote {ending.garbage} bytes to the worker's event channel"))
        if ending.exit:
            self.exit_request = (ending.exit[0], ending.exit[1])
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
            self.link.send(messages.Heal(gathered.slot, gathered.item, gathered.text))
            return
        self._on_healed(messages.Healed(gathered.item, self.settings.caches.heal(gathered.text)))

    def _on_healed(self, event: messages.Healed) -> None:
        if event.what:
            self.journal.write(journal.Healed(*event))
            self.show.note(f"{self.items[event.item].nodeid}: {event.what}")

    def _journal_end(self, gathered: Gathered, attempt: Attempt) -> None:
        ending = gathered.ending
        assert ending is not None
        event = journal.End(
            gathered.item,
            gathered.number,
            attempt.outcome.value,
            attempt.cause.value,
            attempt.reason,
            round(gathered.seconds, 6),
            [{name: r.get(name) for name in ("when", "outcome", "duration")} for r in gathered.reports],
            dirt=ending.dirt,
        )
        if not attempt.good:
            output = ending.output or sections_of(gathered)
            event = event._replace(text=gathered.text[:65536], dump=ending.dump[:65536], output=output)
        self.journal.write(event)

    # ------------------------------------------------------------------ verdicts

    def settle(self, work: int, final: Final) -> None:
        self.scheduler.settle(work)
        if work in self.prepares:
            return
        self.finals[work] = final
        self.prepared.pop(work, None)  # it may be large, and nobody runs this again
        self.tally.add(final)
        attempts = self.attempts.get(work, [])
        if attempts and final.verdict in {Verdict.PASSED, Verdict.FAILED, Verdict.XFAILED, Verdict.XPASSED}:
            self.seconds[work] = attempts[-1].seconds
            self._hand_out_more_of_short_ones()
        self.journal.write(journal.Verdict(work, final.verdict.value, final.flaky, final.why))
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

    def _on_worker_ended(self, event: messages.WorkerEnded) -> None:
        told = (event.slot, event.worker, event.why, event.abnormal, event.ran, event.late)
        self.journal.write(journal.WorkerEnded(*told))
        if event.late:
            self.deaths.append(f"worker {event.worker}: {event.why}")
        if event.blamed is not None:
            self.show.late_death(event.blamed, event.why)
            self._worsen(event.blamed, Final(Verdict.CRASHED, why=f"worker {event.worker}: {event.why}"))

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        """Let the workers leave, hear their last words, and account for every item."""
        self.link.send(messages.Finish(not self.tally.bad))
        while not self.link.gone:
            for event in self.link.receive(1.0, self.interrupts.fileno()):
                self._handle(event)
            if self._interrupted_twice():
                self.link.send(messages.Kill())
        buried = self.link.bury()
        if not buried.clean and not self.stop_reason:
            self.journal.write(journal.AgentDied(buried.how))
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
