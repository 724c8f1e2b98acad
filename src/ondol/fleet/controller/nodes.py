"""What the controller does about nodes: they come, with their devices; they do not answer; they are left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ondol.fleet import journal, messages, schedule
from ondol.fleet.messages import NodeEvent, Room, never
from ondol.fleet.model import Device, Slot, node_of
from ondol.fleet.verdict import Final, Verdict

if TYPE_CHECKING:
    from ondol.fleet.controller.controller import Controller


class Nodes:
    """The part of the controller that hears of nodes. On one machine it never hears anything."""

    def __init__(self, run: Controller) -> None:
        self._run = run
        #: Node → what it is waiting for, while it is on its way.
        self.waiting: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        #: What the rooms of the nodes have to say at the end.
        self.rooms: dict[str, Room] = {}
        self._complete = False
        self._engine = ""

    def hear(self, event: NodeEvent) -> None:  # noqa: C901 - one line per event
        run = self._run
        match event:
            case messages.EngineWaits():
                self._engine_waits(event)
            case messages.NodeWaits():
                self._node_waits(event)
            case messages.NodeUp():
                self._up(event)
            case messages.NodeLost():
                self._lost(event)
            case messages.NodeOut():
                self._out(event)
            case messages.NodeNotice():
                self._notice(event)
            case messages.NodeNote():
                run.journal.write(journal.NodeNote(*event))
                run.show.note(f"node {event.node}: {event.text}")
            case messages.NodeRoom():
                self.rooms[event.node] = event.room
                run.journal.write(journal.Room(event.node, event.room.status, event.room.room))
            case messages.AllocationEnding():
                run.show.note(event.why)
                run.stop(event.why)
            case messages.AllocationOver():
                run.journal.write(journal.AllocationOver(event.why))
                run.link.send(messages.Interrupt())
            case _:
                never(event)

    def _engine_waits(self, event: messages.EngineWaits) -> None:
        """Said at once: a queue may take hours, and the log would be silent."""
        self._engine = event.engine
        if self.waiting.get(self._engine) != event.what:
            self.waiting[self._engine] = event.what
            self._run.journal.write(journal.EngineWaits(*event))
            self._run.show.waiting(event.what)

    def _node_waits(self, event: messages.NodeWaits) -> None:
        self.waiting.pop(self._engine, None)
        if self.waiting.get(event.node) != event.what:
            self.waiting[event.node] = event.what
            self._run.journal.write(journal.NodeWaits(*event))

    def _up(self, event: messages.NodeUp) -> None:
        run = self._run
        self.waiting.pop(event.node, None)
        names = [device["name"] for device in event.devices]
        times = (event.waited, event.collected)
        run.journal.write(journal.NodeUp(event.node, names, event.host, *times, event.mode, event.python))
        known = {device.name for device in run.fleet.devices}
        for data in event.devices:
            device = Device(**{**data, "probe": tuple(data["probe"])})
            if device.name not in known:
                run.fleet.devices.append(device)
            run.scheduler.join(device, [Slot(name, device.name) for name in event.slots[device.name]])
        for name in event.prepare_slots:
            run.scheduler.join_slot(Slot(name, ""))
        self._expect(event.outlook)

    def _lost(self, event: messages.NodeLost) -> None:
        run, node = self._run, event.node
        run.journal.write(journal.NodeLost(node, event.why, event.how))
        run.show.note(f"node {node} was lost: {event.why}")
        here = self._slots(node)
        # Away first: what is repeated below must not be handed to the dead.
        for device in self._devices(node):
            run.scheduler.device_away(device)
        for name in here:
            if name in run.scheduler.slots:
                run.scheduler.slot_away(name)
        run.losses.supervisor_gone(here, event.how, f"node {node} was lost: {event.why}")
        self._expect(event.outlook)

    def _out(self, event: messages.NodeOut) -> None:
        run, node = self._run, event.node
        self.waiting.pop(node, None)
        self.left_out[node] = event.why
        run.journal.write(journal.NodeOut(node, event.why, event.log))
        run.show.note(f"node {node} is left out: {event.why}")
        if not event.outlook.left:
            run.stop(f"no node is left ({node}: {event.why})")
        self._set_aside(node, event.why)
        # It may have left in good order with something on its way to it that it never saw: nobody else ends that.
        run.losses.supervisor_gone(self._slots(node), "device-lost", f"node {node} is left out: {event.why}")
        self._expect(event.outlook)

    def _notice(self, event: messages.NodeNotice) -> None:
        run, node = self._run, event.node
        run.journal.write(journal.NodeNotice(node, event.why))
        run.show.note(f"node {node} is being taken away: {event.why}")
        if not event.outlook.left:
            run.stop(f"no node is left ({node} is being taken away: {event.why})")
        self._set_aside(node, event.why, end_what_runs=False)
        self._expect(event.outlook)

    def _slots(self, node: str) -> list[str]:
        scheduler = self._run.scheduler
        return [name for name in (*scheduler.slots, *scheduler.running) if node_of(name) == node]

    def _devices(self, node: str) -> list[str]:
        return [device.name for device in self._run.fleet.devices if device.node == node]

    def _set_aside(self, node: str, why: str, *, end_what_runs: bool = True) -> None:
        for device in self._devices(node):
            self._run.losses.condemn(self._run.ledger.node_out(device, node, why), end_what_runs=end_what_runs)
        for name, state in self._run.scheduler.slots.items():
            if not state.slot.device and node_of(name) == node:
                self._run.scheduler.slot_away(name)

    def _expect(self, outlook: messages.Outlook) -> None:
        run = self._run
        run.scheduler.expecting = outlook.expecting
        if not outlook.expecting and not self._complete:
            self._complete = True
            self._refuse(run.scheduler.waiting_works())
        run.act([] if run.stop_reason else run.scheduler.step())

    def _refuse(self, works: Iterable[int]) -> None:
        """All nodes have answered: what none of them could ever run is an error, as on one machine."""
        scheduler = self._run.scheduler
        devices = scheduler.devices
        if not devices:
            return
        for one in schedule.infeasible([scheduler.works[work] for work in works], devices):
            if scheduler.drop(one.work):
                self._run.settle(one.work, Final(Verdict.ERROR, why=one.why))
