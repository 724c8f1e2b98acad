"""What a run does when it loses something: an attempt on a device, a worker's start, a device, or the supervisor of the
workers. Nothing is lost with it: what ran is judged, what had only been handed out goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ondol.fleet.outcome import Gathered
from ondol.fleet.verdict import Attempt, Cause, Final, Verdict
from ondol.fleet.wire import Message

if TYPE_CHECKING:
    from ondol.fleet.controller.controller import Controller

MAX_AGENTS = 4
#: How a runtime that cannot be opened on its device says so.
INIT_FAILURE = "RuntimeOpenFailed"


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
        if INIT_FAILURE in gathered.text:
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
        command = {"command": list(device.probe), "timeout": run.settings.probe_timeout}
        run.link.send({"c": "probe", "device": name, "env": run.fleet.environment((name,)), **command})

    def on_probe(self, message: Message) -> None:
        self._probing.discard(message["device"])
        self._run.journal.write({"e": "probe", "device": message["device"], "fault": message["fault"]})
        if message["fault"]:
            self.condemn(self._run.ledger.probe_failed(message["device"], message["fault"]))

    def condemn(self, condemned: Iterable[tuple[str, str]], *, end_what_runs: bool = True) -> None:
        run = self._run
        for device, why in condemned:
            run.journal.write({"e": "quarantine", "device": device, "why": why, "items": run.ledger.witnesses(device)})
            run.show.note(f"device {device} is set aside: {why}")
            actions = run.scheduler.device_lost(device)
            for slot in run.scheduler.slots_on(device) if end_what_runs else []:
                run.link.send({"c": "lose", "slot": slot, "why": f"device set aside: {why}"})
            run.act(actions)

    def on_start_failed(self, message: Message) -> None:
        run = self._run
        run.journal.write({"e": "start-failed", **{name: message.get(name) for name in ("slot", "worker", "why")}})
        condemned = []
        for device in run.devices_of(message["slot"]):
            condemned += run.ledger.start_failed(device, message["why"])
        if not condemned:
            run.link.send({"c": "resume", "slot": message["slot"]})
            return
        self.condemn(condemned)
        self._give_up_handed(message["slot"], message["why"])

    def on_unreapable(self, message: Message) -> None:
        condemned = []
        for device in self._run.devices_of(message["slot"]):
            condemned += self._run.ledger.unreapable(device, message["why"])
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

    def supervisor_gone(self, slots: Iterable[str], ending: Message) -> None:
        """Whoever watched these slots is gone, and their workers with it: what ran there ended as `ending` says."""
        run, scheduler = self._run, self._run.scheduler
        here = set(slots)
        for slot, gathered in [(s, g) for s, g in run.current.items() if s in here]:
            del run.current[slot]
            scheduler.ended(slot, gathered.item)
            if gathered.item in run.prepares:
                run.prepare_ended(gathered, ending)
            else:
                run.attempt_ended(gathered, ending)
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
        how = run.link.bury()
        run.journal.write({"e": "agent-died", "why": how})
        run.show.note(f"the agent died ({how}); its workers were ended")
        everywhere = [*run.scheduler.slots, *run.scheduler.running]
        self.supervisor_gone(everywhere, {"how": "crashed", "reason": f"its supervisor died: {how}"})
        self._probing.clear()
        self._agents += 1
        if self._agents > MAX_AGENTS:
            run.stop("the agent died too often")
            return
        run.link = run.start_link()
