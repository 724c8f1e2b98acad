"""What a run does when it loses something: an attempt on a device, a worker's start, a device, or the supervisor of the
workers. Nothing is lost with it: what ran is judged, what had only been handed out goes elsewhere.

Who decides for the controller returns actions, a closed set. Most are things that exist anyway: a message to be sent,
an event to be recorded, an ending that no agent was left to tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ondol.fleet import journal, messages, model
from ondol.fleet.devices import Fleet
from ondol.fleet.messages import Command, Ended, How
from ondol.fleet.quarantine import OPENING, STARTING, Ledger
from ondol.fleet.schedule import Scheduler
from ondol.fleet.verdict import Attempt, Cause

MAX_AGENTS = 4


#: Who watched these slots is gone: what was handed to them and has not begun goes elsewhere.
class Vacate(NamedTuple):
    slots: Sequence[str]


#: Hand out nothing more.
class Stop(NamedTuple):
    reason: str


#: Start another agent.
class NewAgent(NamedTuple):
    pass


Action = model.Action | Command | journal.Event | Ended | Vacate | Stop | NewAgent


class Losses:
    """Blames, sets aside and gives up; `running` is what runs where, and changes."""

    def __init__(
        self, scheduler: Scheduler, fleet: Fleet, running: Mapping[str, Ended], probe_timeout: float = 30.0
    ) -> None:
        self._scheduler = scheduler
        self._fleet = fleet
        self._running = running
        self._probe_timeout = probe_timeout
        self._ledger = Ledger()
        self._agents = 1
        self._probing: set[str] = set()

    # ------------------------------------------------------------------ devices

    def worker_up(self, event: messages.WorkerUp) -> list[Action]:
        for name in self._scheduler.devices_of(event.slot) or (event.slot,):
            self._ledger.worked(STARTING, name)
        return [event]

    def blame(self, ending: Ended, attempt: Attempt) -> list[Action]:
        """What an attempt says about its device."""
        devices = self._scheduler.devices_of(ending.slot)
        if len(devices) != 1:
            return []  # several devices: no single one can be named
        (device,) = devices
        actions = self._condemn(self._ledger.attempt(ending.item, device, attempt.good))
        if ending.fault == "runtime-open":
            actions += self._condemn(self._ledger.failed(OPENING, device, attempt.reason))
        if attempt.cause in {Cause.CRASHED, Cause.TIMEOUT, Cause.DEVICE} and not self._scheduler.stopping:
            actions += self._probe(device)
        return actions

    def _probe(self, name: str) -> list[Action]:
        device = self._scheduler.devices[name]
        # Whoever cannot be asked now is asked by its return, or is given up.
        if not device.probe or name in self._probing | self._scheduler.away | self._scheduler.lost:
            return []
        self._probing.add(name)
        return [messages.Probe(name, self._fleet.environment([device]), list(device.probe), self._probe_timeout)]

    def probed(self, event: messages.Probed) -> list[Action]:
        self._probing.discard(event.device)
        why = f"health probe failed: {event.fault}"
        return [event, *self._condemn(self._ledger.condemn(event.device, why) if event.fault else ())]

    def _condemn(self, condemned: Iterable[tuple[str, str]], *, end_what_runs: bool = True) -> list[Action]:
        actions: list[Action] = []
        for device, why in condemned:
            actions.append(journal.Quarantine(device, why, self._ledger.witnesses(device)))
            revoked = self._scheduler.device_lost(device)
            if end_what_runs:
                lost = self._scheduler.slots_on(device)
                actions += [messages.Lose(slot, f"device set aside: {why}") for slot in lost]
            actions += revoked
        return actions

    def node_out(self, node: str, why: str, *, end_what_runs: bool = True) -> list[Action]:
        actions: list[Action] = []
        told = f"node {node} is left out: {why}"
        for device in self._scheduler.devices_in(node):
            actions += self._condemn(self._ledger.condemn(device, told), end_what_runs=end_what_runs)
        return actions

    def start_failed(self, event: messages.StartFailed) -> list[Action]:
        devices = self._scheduler.devices_of(event.slot)
        condemned = []
        for name in devices or (event.slot,):
            condemned += self._ledger.failed(STARTING, name, event.why)
        if not condemned:
            return [event, messages.Resume(event.slot)]
        # What was handed to it never ran: it is asked for, and goes elsewhere.
        return [event, *(self._condemn(condemned) if devices else self._scheduler.slot_lost(event.slot))]

    def unreapable(self, event: messages.Unreapable) -> list[Action]:
        condemned = []
        for device in self._scheduler.devices_of(event.slot):
            condemned += self._ledger.condemn(device, f"a killed process would not end: {event.why}")
        return self._condemn(condemned)

    # ------------------------------------------------------------------ supervisors

    def supervisor_gone(self, slots: Iterable[str], how: How, reason: str) -> list[Action]:
        """Whoever watched these slots is gone, and their workers with it: what ran there ended so."""
        here = list(slots)
        ran = [self._running[slot] for slot in here if slot in self._running]
        return [*(one._replace(how=how, reason=reason) for one in ran), Vacate(here)]

    def agent_died(self, how: str) -> list[Action]:
        """The one agent of this machine. What is asked of a dead one, or was, is answered by nobody."""
        # The first one may have died of an item that its worker had begun and it had not heard of: what it believed to
        # run is run once more, whatever the retries. The next ones hand nothing ahead.
        cause: How = "device-lost" if self._agents == 1 else "crashed"
        self._agents += 1
        self._probing = set(self._scheduler.devices)
        ended = self.supervisor_gone(self._scheduler.everywhere(), cause, f"its supervisor died: {how}")
        another = NewAgent() if self._agents <= MAX_AGENTS else Stop("the agent died too often")
        return [journal.AgentDied(how), *ended, another]

    def agent_is_new(self) -> None:
        self._probing.clear()
