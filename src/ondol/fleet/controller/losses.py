"""What a run does when it loses something: an attempt on a device, a worker's start, a device, or the supervisor of the
workers. Nothing is lost with it: what ran is judged, what had only been handed out goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ondol.fleet import journal, messages
from ondol.fleet.messages import How
from ondol.fleet.outcome import Gathered
from ondol.fleet.verdict import Attempt, Cause, Final, Verdict

if TYPE_CHECKING:
    from ondol.fleet.controller.controller import Controller

MAX_AGENTS = 4


class Losses:
    """The part of the controller that blames, sets aside and gives up."""

    def __init__(self, run: Controller) -> None:
        self._run = run
        self._agents = 1
        self._probing: set[str] = set()

    # ------------------------------------------------------------------ devices

    def blame(self, gathered: Gathered, attempt: Attempt) -> None:
        run = self._run
        if "+" in gathered.device or not gathered.device:
            return  # several devices: no single one can be named
        self.condemn(run.ledger.attempt(gathered.item, gathered.device, attempt.good))
        if gathered.ending is not None and gathered.ending.fault == "runtime-open":
            self.condemn(run.ledger.init_failed(gathered.device, attempt.reason))
        if attempt.cause in {Cause.CRASHED, Cause.TIMEOUT, Cause.DEVICE} and not run.stop_reason:
            self._probe(gathered.device)

    def _probe(self, name: str) -> None:
        run = self._run
        device = next(d for d in run.fleet.devices if d.name == name)
        # Whoever cannot be asked now is asked by its return, or is given up.
        if not device.probe or name in self._probing or name in run.scheduler.away | run.scheduler.lost:
            return
        self._probing.add(name)
        environment = run.fleet.environment((name,))
        run.link.send(messages.Probe(name, environment, list(device.probe), run.settings.probe_timeout))

    def probed(self, event: messages.Probed) -> None:
        self._probing.discard(event.device)
        self._run.journal.write(journal.Probe(*event))
        if event.fault:
            self.condemn(self._run.ledger.probe_failed(event.device, event.fault))

    def condemn(self, condemned: Iterable[tuple[str, str]], *, end_what_runs: bool = True) -> None:
        run = self._run
        for device, why in condemned:
            run.journal.write(journal.Quarantine(device, why, run.ledger.witnesses(device)))
            run.show.note(f"device {device} is set aside: {why}")
            actions = run.scheduler.device_lost(device)
            for slot in run.scheduler.slots_on(device) if end_what_runs else []:
                run.link.send(messages.Lose(slot, f"device set aside: {why}"))
            run.act(actions)

    def start_failed(self, event: messages.StartFailed) -> None:
        run = self._run
        run.journal.write(journal.StartFailed(*event))
        condemned = []
        for device in run.devices_of(event.slot):
            condemned += run.ledger.start_failed(device, event.why)
        if not condemned:
            run.link.send(messages.Resume(event.slot))
            return
        self.condemn(condemned)
        self._give_up_handed(event.slot, event.why)

    def unreapable(self, event: messages.Unreapable) -> None:
        condemned = []
        for device in self._run.devices_of(event.slot):
            condemned += self._run.ledger.unreapable(device, event.why)
        self.condemn(condemned)

    def _give_up_handed(self, slot: str, why: str) -> None:
        """Its worker never started, so what was handed to it never ran: it goes elsewhere."""
        run, scheduler = self._run, self._run.scheduler
        state = scheduler.slots.get(slot)
        if state is not None and state.handed:
            work = state.handed[0]
            scheduler.ended(slot, work)
            scheduler.repeat(work, frozenset(run.devices_of(slot)))
        elif slot in scheduler.running:
            work = scheduler.running[slot].work
            scheduler.ended(slot, work)
            scheduler.retired(slot)
            run.settle(work, Final(Verdict.DEVICE_LOST, why=why))

    # ------------------------------------------------------------------ supervisors

    def supervisor_gone(self, slots: Iterable[str], how: How, reason: str) -> None:
        """Whoever watched these slots is gone, and their workers with it: what ran there ended so."""
        run, scheduler = self._run, self._run.scheduler
        here = set(slots)
        for slot, gathered in [(s, g) for s, g in run.current.items() if s in here]:
            del run.current[slot]
            scheduler.ended(slot, gathered.item)
            if gathered.item in run.prepares:
                run.prepare_ended(gathered, gathered.cut_off(how, reason))
            else:
                run.attempt_ended(gathered, gathered.cut_off(how, reason))
        for slot in [name for name in scheduler.running if name in here]:
            self._give_up_gang(slot)
        for state in [s for s in scheduler.slots.values() if s.slot.name in here]:
            scheduler.revoked(state.slot.name, list(state.handed))
            state.warm = state.waiting = False

    def _give_up_gang(self, slot: str) -> None:
        """Its attempt has ended, or it had not begun."""
        scheduler = self._run.scheduler
        gang = scheduler.running[slot]
        if gang.running:
            scheduler.ended(slot, gang.work)
            scheduler.repeat(gang.work, frozenset())
        scheduler.retired(slot)

    def replace_agent(self) -> None:
        """The one agent of this machine has died."""
        run = self._run
        how = run.link.bury().how
        run.journal.write(journal.AgentDied(how))
        run.show.note(f"the agent died ({how}); its workers were ended")
        everywhere = [*run.scheduler.slots, *run.scheduler.running]
        self.supervisor_gone(everywhere, "crashed", f"its supervisor died: {how}")
        self._probing.clear()
        self._agents += 1
        if self._agents > MAX_AGENTS:
            run.stop("the agent died too often")
            return
        run.link = run.start_link()
