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
        condemned = self._ledger.attempt(ending.item, device, attempt.good)
        actions = [action for other, why in condemned for action in self._condemn(other, why)]
        if ending.fault == "runtime-open":
            actions += self._condemn(device, self._ledger.failed(OPENING, device, attempt.reason))
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
        return [event, *self._condemn(event.device, event.fault and f"health probe failed: {event.fault}")]

    def _condemn(self, device: str, why: str | None, *, end_what_runs: bool = True) -> list[Action]:
        """If there is a reason, and once."""
        if not why or device in self._scheduler.lost:
            return []
        revoked = self._scheduler.device_lost(device)
        lost = self._scheduler.slots_on(device) if end_what_runs else []
        ends = [messages.Lose(slot, f"device quarantined: {why}") for slot in lost]
        return [journal.Quarantine(device, why, self._ledger.witnesses.get(device, [])), *ends, *revoked]

    def node_out(self, node: str, why: str, *, end_what_runs: bool = True) -> list[Action]:
        told, devices = f"node {node} is left out: {why}", self._scheduler.devices_in(node)
        return [action for one in devices for action in self._condemn(one, told, end_what_runs=end_what_runs)]

    def start_failed(self, event: messages.StartFailed) -> list[Action]:
        devices = self._scheduler.devices_of(event.slot)
        reasons = [(name, self._ledger.failed(STARTING, name, event.why)) for name in devices or (event.slot,)]
        if not any(why for _, why in reasons):
            return [event, messages.Resume(event.slot)]
        # What was handed to it never ran: it is asked for, and goes elsewhere.
        if not devices:
            return [event, *self._scheduler.slot_lost(event.slot)]
        return [event, *(action for name, why in reasons for action in self._condemn(name, why))]

    def unreapable(self, event: messages.Unreapable) -> list[Action]:
        why = f"a process there did not end when it was killed: {event.why}"
        devices = self._scheduler.devices_of(event.slot)
        return [action for device in devices for action in self._condemn(device, why)]

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
