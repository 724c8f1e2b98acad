"""The controller: turns events of the agent into decisions, records them in the journal, and only then shows them.

It never runs a test and never touches a device. What it must decide is decided by pure modules (`schedule`, `verdict`,
`quarantine`); what is shown goes through `Show`, which the pytest plugin implements.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ondol.fleet import journal, messages, xdist
from ondol.fleet.controller import models
from ondol.fleet.controller.losses import Action, Losses, NewAgent, Stop, Vacate
from ondol.fleet.controller.nodes import Nodes
from ondol.fleet.devices import Fleet
from ondol.fleet.interrupts import Interrupts
from ondol.fleet.messages import Buried, Command, Ended, Event, RunItem, ToNode, opened
from ondol.fleet.model import HandOut, Unrunnable, node_of
from ondol.fleet.outcome import end_of, failure_of, text_of
from ondol.fleet.record import MEASURED, Book, ItemRecord, RunRecord
from ondol.fleet.schedule import Scheduler
from ondol.fleet.verdict import Again, Cause, Final, JudgeRecord, Policy, Verdict, judge, note_judgement

#: After so many items with a mean below so many seconds, so many are handed out at a time.
MANY, SHORT, DEEP = 10, 0.02, 32


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

    def result(self, number: int, item: ItemRecord) -> None: ...
    def late(self, item: int, report: dict[str, Any]) -> None: ...
    def late_death(self, item: int, why: str) -> None: ...
    def warning(self, data: dict[str, Any]) -> None: ...
    def given(self, env: dict[str, str]) -> dict[str, str]: ...
    def output(self, worker: str, text: str) -> None: ...
    def moved(self, record: RunRecord) -> None: ...
    def wants_to_stop(self) -> str: ...


@dataclass
class RunSettings:
    """What the user chose about judging and stopping."""

    policy: Policy = field(default_factory=Policy)
    hygiene: str = "report"
    session_timeout: float = 0.0
    #: `-x` and friends: show every result before the next item is handed out.
    careful: bool = False
    probe_timeout: float = 30.0
    #: What the other wing knows: the cache's fault that the text of a failure shows, sure or silent; and what was done
    #: about it while other workers use the cache. Empty: none, nothing.
    cache_fault: Callable[[str], str] = lambda _text: ""
    heal_cache: Callable[[str], str] = lambda _text: ""
    #: The items are a part of what was collected (`--rerun`, `--shard`).
    chosen: bool = False
    #: The same for all workers of the run, and for no other run.
    uid: str = ""


class Controller:
    """Runs every item. What happened is in `record`, and nowhere else."""

    def __init__(
        self,
        fleet: Fleet,
        scheduler: Scheduler,
        start_link: Callable[[], Link],
        book: Book,
        show: Show,
        settings: RunSettings,
        interrupts: Interrupts,
        prepares: dict[int, int] | None = None,
    ) -> None:
        self.fleet = fleet
        self.scheduler = scheduler
        self.book = book
        self.show = show
        self.settings = settings
        self.interrupts = interrupts
        self._interrupts_seen = 0
        #: Work that prepares → the item that it prepares.
        self.prepares = prepares or {}
        self.prepared: dict[int, Any] = {}
        self.judging = JudgeRecord()
        #: Slot → what runs there, as it will be told when it ends.
        self.running: dict[str, Ended] = {}
        self._measured, self._spent = 0, 0.0
        self._began = time.monotonic()
        self._to_show: deque[int] = deque()
        self.losses = Losses(scheduler, fleet, self.running, settings.probe_timeout)
        self.nodes = Nodes(scheduler, self.losses, book.record.waiting)
        self.start_link = start_link
        self.link = start_link()

    @property
    def record(self) -> RunRecord:
        return self.book.record

    @property
    def stop_reason(self) -> str:
        return self.record.stopped.reason if self.record.stopped else ""

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Until every item has its verdict."""
        self._hand_out()
        while not self.scheduler.finished:
            if self._listen():
                self._hand_out()  # the next item is on its way before anything is shown
            if self._to_show:
                self._show_one(self._to_show.popleft())
            self._check_limits()
            if self._interrupted_twice():
                self.abandon()
                return
        self.show_all()
        self._finish()

    def _hand_out(self) -> None:
        """All that can be; what is done about that may make more possible."""
        while not self.stop_reason and (actions := self.scheduler.step()):
            self.act(actions)

    def _listen(self) -> bool:
        """Whether anything has happened."""
        timeout = 0.0 if self._to_show else max(0.0, min(0.5, self._time_left()))
        events = self.link.receive(timeout, self.interrupts.fileno())
        for event in events:
            self._hear(event)
        gone = self.link.gone
        if gone:
            self.act(self.losses.agent_died(self.link.bury().how))
        self.show.moved(self.record)
        return bool(events) or gone

    def _interrupted_twice(self) -> bool:
        """Obeys the first Ctrl-C; True for the second."""
        if self.interrupts.count > self._interrupts_seen:
            self.interrupts.acknowledge()
            self._interrupts_seen = self.interrupts.count
            if self.stop_reason != "interrupted":
                self.interrupt()
        return self.interrupts.count > 1

    def _time_left(self) -> float:
        """For ever once the run is stopping: who waits no time at all for its last workers burns a core."""
        limit = 0.0 if self.stop_reason else self.settings.session_timeout
        return limit - (time.monotonic() - self._began) if limit else math.inf

    def _check_limits(self) -> None:
        if self._time_left() <= 0:
            self.stop("session-timeout")
            for slot, state in self.scheduler.everywhere().items():
                if state.handed:
                    self.link.send(messages.Lose(slot, "the run's deadline passed"))

    def show_all(self) -> None:
        while self._to_show:
            self._show_one(self._to_show.popleft())

    def _show_one(self, number: int) -> None:
        item = self.record.items[number]
        self.show.result(number, item)
        for warning in item.attempts[-1].warnings if item.attempts else []:
            self.show.warning(warning)
        item.forget_reports()
        if wish := self.show.wants_to_stop():
            self.stop(wish)

    # ------------------------------------------------------------------ carrying out

    def act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case HandOut():
                    self._send_run(action)
                case Unrunnable():
                    self.settle(action.work, Final(action.verdict, why=action.why))
                case Ended():
                    self._end(action)
                case Vacate():
                    self.scheduler.vacate(action.slots)
                case Stop():
                    self.stop(action.reason)
                case NewAgent():
                    self.link = self.start_link()
                    self.losses.agent_is_new()
                case _:
                    if isinstance(action, Command):
                        self.link.send(action)
                    else:
                        self.book.write(action)

    def _send_run(self, run: HandOut) -> None:
        works, target = self.scheduler.works, self.prepares.get(run.work, run.work)
        devices = [self.scheduler.devices[name] for name in run.devices]
        prepares = run.work in self.prepares
        names = xdist.environment(run.slot, self.scheduler.slots, self.settings.uid)
        given = {} if prepares else self.show.given(names)
        self.link.send(
            RunItem(
                run.slot,
                run.work,
                1 if prepares else len(self.record.items[target].attempts) + 1,
                target,
                works[target].nodeid,
                fresh=run.fresh,
                last=run.last,
                hint=run.hint,
                hint_nodeid="" if run.hint is None else works[run.hint].nodeid,
                more=run.more,
                timeout=works[target].timeout,
                runtime=works[run.work].runtime,
                prepare=prepares,
                prepared=self.prepared.get(run.work),
                env={**self.fleet.environment(devices), **names, **given},
                devices=[device.told for device in devices],
            )
        )

    def stop(self, reason: str, told: tuple[str, int | None] | None = None) -> None:
        """Hand out nothing more."""
        if not self.stop_reason:
            self.book.write(journal.Stopped(reason, told))
            self.act(self.scheduler.stop())

    def interrupt(self) -> None:
        """Ctrl-C or SIGTERM, the first time: stop, end what runs, report."""
        self.book.write(journal.Stopped("interrupted", None))
        self.act([*self.scheduler.stop(), messages.Interrupt()])

    def abandon(self) -> None:
        """The second time: now. What ran is recorded as interrupted."""
        self.link.send(messages.Kill())
        self.link.bury()
        for ending in list(self.running.values()):
            self._end(ending._replace(how="interrupted", reason="interrupted while it ran"))
        self._close_books("interrupted")

    # ------------------------------------------------------------------ events of the agent

    def _hear(self, event: Event) -> None:  # noqa: C901 - one line per event
        match event:
            case messages.WorkerUp():
                self.act(self.losses.worker_up(event))
            case messages.Started():
                self._on_started(event)
            case messages.Ended():
                self._end(event)
                if self.settings.careful:
                    self.show_all()  # before the next item is handed out: with -x the showing may be what stops it
            case messages.Warned():
                self._on_warning(event)
            case messages.LateReport():
                self._on_late(event)
            case messages.Listed():
                self.act(models.listed(event, self.scheduler, chosen=self.settings.chosen))
            case messages.Output():
                self.show.output(event.worker, event.text)
            case messages.Broken():
                self.book.write(journal.Note(f"worker {event.worker} broke: {event.text}"))
            case messages.Revoked():
                self._on_revoked(event)
            case messages.Retired():
                self.scheduler.retired(event.slot)
            case messages.WorkerEnded():
                self._on_worker_ended(event)
            case messages.Healed():
                self._note_healed(event)
            case messages.StartFailed():
                self.act(self.losses.start_failed(event))
            case messages.Unreapable():
                self.act(self.losses.unreapable(event))
            case messages.Probed():
                self.act(self.losses.probed(event))
            case messages.Pong():
                pass  # it was heard: that was all
            case _:
                self.act(self.nodes.hear(event))

    def _on_started(self, event: messages.Started) -> None:
        slot, worker, item, attempt, warm = event
        self.running[slot] = Ended(slot, worker, item, attempt, "done", warm=warm)
        if item in self.prepares:
            self.book.write(journal.Preparing(slot, self.prepares[item]))
        else:
            device = "+".join(self.scheduler.devices_of(slot))
            self.book.write(journal.Start(item, attempt, slot, worker, device, warm))

    def _on_revoked(self, event: messages.Revoked) -> None:
        running = self.running.get(event.slot)
        if running is not None and running.item in event.items:
            # Its worker died of what was before it, and never took it up.
            del self.running[event.slot]
            prepares = running.item in self.prepares
            self.book.write(
                journal.Preparing(event.slot, None) if prepares else journal.Withdrawn(running.item, event.slot)
            )
        self.scheduler.revoked(event.slot, list(event.items))

    def _on_warning(self, event: messages.Warned) -> None:
        """Shown with its item: an earlier item may still wait to be shown."""
        known = [(running.item, running.attempt) for running in self.running.values()]
        if event.item is None or event.item in self.prepares or (event.item, event.attempt) not in known:
            self.show.warning(event.data)
        else:
            attempt = self.record.items[event.item].attempts[-1]
            attempt.warnings = [*attempt.warnings, event.data]

    def _on_late(self, event: messages.LateReport) -> None:
        """A wider fixture's finaliser failed after its last item had its verdict."""
        self.book.write(journal.Late(event.item, text_of(event.data)[:4000]))
        self.show.late(event.item, event.data)
        self._worsen(event.item, Verdict.ERROR, "a fixture's finaliser failed after it")

    def _worsen(self, number: int, verdict: Verdict, why: str) -> None:
        """A verdict may get worse after it was given, never better; it is still one verdict."""
        item = self.record.items[number]
        if item.verdict and not item.failed:
            self.book.write(journal.Verdict(number, verdict.value, False, why))

    def _on_worker_ended(self, event: messages.WorkerEnded) -> None:
        self.book.write(event)
        if event.blamed is not None:
            self.show.late_death(event.blamed, event.why)
            self._worsen(event.blamed, Verdict.CRASHED, f"worker {event.worker}: {event.why}")

    def _end(self, event: Ended) -> None:
        del self.running[event.slot]
        ending = event._replace(reports=opened(event.block), block=b"")
        self.scheduler.ended(event.slot, event.item)
        if event.item in self.prepares:
            self._prepare_ended(ending)
        else:
            self._attempt_ended(ending)

    def _prepare_ended(self, ending: Ended) -> None:
        target = self.prepares[ending.item]
        self.book.write(journal.Preparing(ending.slot, None))
        if ending.how == "device-lost" and ending.item not in self.scheduler.fresh and not self.stop_reason:
            self.scheduler.repeat(ending.item, frozenset())  # once, as an item whose device was lost
            return
        self.scheduler.settle(ending.item)
        if ending.how == "done" and not ending.escaped:
            self.prepared[target] = ending.prepared
        elif self.scheduler.drop(target):
            end = end_of(ending, "")._replace(item=target, attempt=1, text=ending.escaped or ending.reason)
            start = journal.Start(target, 1, ending.slot, ending.worker, "", False)
            self.book.write(start, end)
            self.settle(target, Final(Verdict(end.outcome), why="its preparation failed"))

    def _attempt_ended(self, ending: Ended) -> None:
        number, text = ending.item, failure_of(ending.reports)
        settings = self.settings
        end = end_of(ending, text, dirt_fails=settings.hygiene == "fail", cache_fault=settings.cache_fault)
        if ending.how == "device-lost" and self.stop_reason == "session-timeout":
            why = "the run's deadline passed while it ran"
            end = end._replace(outcome=Verdict.TIMEOUT.value, cause=Cause.INTERRUPTED.value, reason=why)
        if ending.exit:
            self.stop("exit", (ending.exit[0], ending.exit[1]))
        self.book.write(end)
        item = self.record.items[number]
        item.attempts[-1].reports = ending.reports
        attempts = [attempt.judged() for attempt in item.attempts]
        self.act(self.losses.blame(ending, attempts[-1]))
        decision = judge(attempts, settings.policy, self.judging)
        if isinstance(decision, Again) and not self.stop_reason:
            if attempts[-1].cause is Cause.CACHE:
                self._heal(ending, text)
            self.scheduler.repeat(number, decision.avoid)
            return
        final = decision if isinstance(decision, Final) else Final(attempts[-1].outcome, why=attempts[-1].reason)
        note_judgement(attempts, final, self.judging)
        self.settle(number, final)
        if self.judging.spent(settings.policy):
            self._judge_no_more()

    def _judge_no_more(self) -> None:
        """Second attempts begin when a worker has nothing else to do: by now every failure may wait for one."""
        for work in sorted(self.scheduler.fresh.intersection(self.scheduler.waiting_works()) - set(self.prepares)):
            attempts = [attempt.judged() for attempt in self.record.items[work].attempts]
            decision = judge(attempts, self.settings.policy, self.judging)
            if isinstance(decision, Final) and self.scheduler.drop(work):
                self.settle(work, decision)

    def _heal(self, ending: Ended, text: str) -> None:
        if node_of(ending.slot):
            # The cache is the node's: whoever started the agent there mends it before he passes on the next item.
            self.link.send(messages.Heal(ending.slot, ending.item, text))
            return
        self._note_healed(messages.Healed(ending.item, self.settings.heal_cache(text)))

    def _note_healed(self, healed: messages.Healed) -> None:
        if healed.what:
            self.book.write(healed)

    # ------------------------------------------------------------------ verdicts

    def settle(self, work: int, final: Final) -> None:
        self.scheduler.settle(work)
        if work in self.prepares:
            return
        self.prepared.pop(work, None)  # it may be large, and nobody runs this again
        self.book.write(journal.Verdict(work, final.verdict.value, final.flaky, final.why))
        attempts = self.record.items[work].attempts
        if attempts and final.verdict in MEASURED and not self.settings.careful:
            self._hand_out_more_of_short_ones(attempts[-1].seconds)
        self._to_show.append(work)

    def _hand_out_more_of_short_ones(self, seconds: float) -> None:
        """Items of a millisecond would wait for the next one to arrive; what is handed out can be revoked."""
        self._measured, self._spent = self._measured + 1, self._spent + seconds
        if self._measured >= MANY:
            self.scheduler.depth = DEEP if self._spent / self._measured < SHORT else 2

    # ------------------------------------------------------------------ the end

    def _finish(self) -> None:
        """Let the workers leave, hear their last words, and account for every item."""
        self.link.send(messages.Finish(not self.record.bad))
        while not self.link.gone:
            for event in self.link.receive(1.0, self.interrupts.fileno()):
                self._hear(event)
            if self._interrupted_twice():
                self.link.send(messages.Kill())
        buried = self.link.bury()
        if not buried.clean and not self.stop_reason:
            self.book.write(journal.AgentDied(buried.how))
        self._close_books(self.stop_reason)

    def _close_books(self, reason: str) -> None:
        for work, item in enumerate(self.record.items):
            if item.verdict:
                continue
            last = item.attempts[-1].judged() if item.attempts else None
            if last and last.cause is not Cause.INTERRUPTED:
                self.settle(work, Final(last.outcome, why=last.reason))
            else:
                why = last.reason if last else f"never started: {reason or 'nothing could run it'}"
                self.settle(work, Final(Verdict.NOT_RUN, why=why))
        self.show_all()
