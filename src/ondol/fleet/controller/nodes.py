"""What the controller does about nodes: they come, with their devices; they do not answer; they are left out."""

from collections.abc import Mapping

from ondol.fleet import messages, schedule
from ondol.fleet.controller.losses import Action, Losses, Stop
from ondol.fleet.messages import NodeEvent, never
from ondol.fleet.model import Device, Slot, node_of
from ondol.fleet.schedule import Scheduler


class Nodes:
    """Hears of nodes; on one machine it never hears anything. `waiting` is what is recorded of those on their way."""

    def __init__(self, scheduler: Scheduler, losses: Losses, waiting: Mapping[str, str]) -> None:
        self._scheduler = scheduler
        self._losses = losses
        self._waiting = waiting
        self._gone = ""
        self._complete = False

    def hear(self, event: NodeEvent) -> list[Action]:
        match event:
            case messages.EngineWaits(who, what) | messages.NodeWaits(who, what):
                return [event] if self._waiting.get(who) != what else []
            case messages.NodeUp():
                return self._up(event)
            case messages.NodeLost():
                return self._lost(event)
            case messages.NodeOut():
                return self._out(event)
            case messages.NodeNotice():
                self._gone = f"{event.node} is being taken away: {event.why}"
                return [event, *self._set_aside(event.node, event.why, end_what_runs=False)]
            case messages.Outlook():
                return self._expect(event)
            case messages.NodeNote() | messages.NodeRoom():
                return [event]
            case messages.AllocationEnding():
                return [event, Stop(event.why)]
            case messages.AllocationOver():
                return [event, messages.Interrupt()]
            case _:
                return never(event)

    def _up(self, event: messages.NodeUp) -> list[Action]:
        for data in event.devices:
            device = Device(**{**data, "probe": tuple(data["probe"])})
            self._scheduler.join(device, [Slot(name, device.name) for name in event.slots[device.name]])
        for name in event.prepare_slots:
            self._scheduler.join_slot(Slot(name, ""))
        return [event]

    def _lost(self, event: messages.NodeLost) -> list[Action]:
        here = self._slots(event.node)
        # Away first: what is repeated then must not be handed to the dead.
        for device in self._scheduler.devices_in(event.node):
            self._scheduler.device_away(device)
        for name in here:
            if name in self._scheduler.slots:
                self._scheduler.slot_away(name)
        why = f"node {event.node} was lost: {event.why}"
        return [event, *self._losses.supervisor_gone(here, event.how, why)]

    def _out(self, event: messages.NodeOut) -> list[Action]:
        self._gone = f"{event.node}: {event.why}"
        aside = self._set_aside(event.node, event.why)
        # It may have left in good order with something on its way to it that it never saw: nobody else ends that.
        why = f"node {event.node} is left out: {event.why}"
        return [event, *aside, *self._losses.supervisor_gone(self._slots(event.node), "device-lost", why)]

    def _slots(self, node: str) -> list[str]:
        return [name for name in self._scheduler.everywhere() if node_of(name) == node]

    def _set_aside(self, node: str, why: str, *, end_what_runs: bool = True) -> list[Action]:
        actions = self._losses.node_out(node, why, end_what_runs=end_what_runs)
        for name, state in self._scheduler.slots.items():
            if not state.slot.device and node_of(name) == node:
                self._scheduler.slot_away(name)
        return actions

    def _expect(self, outlook: messages.Outlook) -> list[Action]:
        gone, self._gone = self._gone, ""
        self._scheduler.expecting = outlook.expecting
        actions: list[Action] = [Stop(f"no node is left ({gone})")] if gone and not outlook.left else []
        if not outlook.expecting and not self._complete:
            self._complete = True
            actions += self._refuse()
        return actions

    def _refuse(self) -> list[Action]:
        """All nodes have answered: what none of them could ever run is an error, as on one machine."""
        scheduler = self._scheduler
        waiting = [scheduler.works[work] for work in scheduler.waiting_works()] if scheduler.devices else []
        return [one for one in schedule.infeasible(waiting, scheduler.devices) if scheduler.drop(one.work)]
