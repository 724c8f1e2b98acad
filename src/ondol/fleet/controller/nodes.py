"""What the controller does about nodes: they come, with their devices; they do not answer; they are left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ondol.fleet import schedule
from ondol.fleet.model import Device, Slot, node_of
from ondol.fleet.verdict import Final, Verdict
from ondol.fleet.wire import Message

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
        self.rooms: dict[str, Message] = {}
        self._complete = False
        self._engine = ""

    def on_engine_waits(self, message: Message) -> None:
        """For nodes that nobody can name yet. Said at once: a queue may take hours, and the log would be silent."""
        self._engine, what = message["engine"], message["what"]
        if self.waiting.get(self._engine) != what:
            self.waiting[self._engine] = what
            self._run.journal.write({"e": "engine-waits", "engine": self._engine, "what": what})
            self._run.show.waiting(what)

    def on_node_waits(self, message: Message) -> None:
        self.waiting.pop(self._engine, None)
        if self.waiting.get(message["node"]) != message["what"]:
            self.waiting[message["node"]] = message["what"]
            self._run.journal.write({"e": "node-waits", "node": message["node"], "what": message["what"]})

    def on_node_up(self, message: Message) -> None:
        """It has collected the same items; its devices and slots are named with it."""
        run, node = self._run, message["node"]
        self.waiting.pop(node, None)
        told = ("node", "host", "waited", "collected", "mode", "python")
        names = [device["name"] for device in message["devices"]]
        run.journal.write({"e": "node-up", "devices": names, **{name: message.get(name) for name in told}})
        known = {device.name for device in run.fleet.devices}
        for data in message["devices"]:
            device = Device(**{**data, "probe": tuple(data["probe"])})
            if device.name not in known:
                run.fleet.devices.append(device)
            slots = [Slot(name, device.name) for name in message["slots"][device.name]]
            run.scheduler.join(device, slots)
        for name in message["prepare_slots"]:
            run.scheduler.join_slot(Slot(name, ""))
        self._expect(message)

    def on_node_lost(self, message: Message) -> None:
        """Its agent is gone. What ran there ended with it; it may come back."""
        run, node = self._run, message["node"]
        run.journal.write({"e": "node-lost", "node": node, "why": message["why"], "how": message["how"]})
        run.show.note(f"node {node} was lost: {message['why']}")
        here = self._slots(node)
        reason = f"node {node} was lost: {message['why']}"
        # Away first: what is repeated below must not be handed to the dead.
        for device in self._devices(node):
            run.scheduler.device_away(device)
        for name in here:
            if name in run.scheduler.slots:
                run.scheduler.slot_away(name)
        run.losses.supervisor_gone(here, {"how": message["how"], "reason": reason})
        self._expect(message)

    def on_node_out(self, message: Message) -> None:
        """It is not asked again, for this reason."""
        run, node = self._run, message["node"]
        self.waiting.pop(node, None)
        self.left_out[node] = message["why"]
        run.journal.write({"e": "node-out", "node": node, "why": message["why"], "log": message.get("log", "")})
        run.show.note(f"node {node} is left out: {message['why']}")
        if not message["left"]:
            run.stop(f"no node is left ({node}: {message['why']})")
        self._set_aside(node, message["why"])
        # It may have left in good order with something on its way to it that it never saw: nobody else ends that.
        reason = f"node {node} is left out: {message['why']}"
        run.losses.supervisor_gone(self._slots(node), {"how": "device-lost", "reason": reason})
        self._expect(message)

    def on_node_notice(self, message: Message) -> None:
        """It was told that it will be taken away: it finishes what runs, if that can, and gets nothing new."""
        run, node = self._run, message["node"]
        run.journal.write({"e": "node-notice", "node": node, "why": message["why"]})
        run.show.note(f"node {node} is being taken away: {message['why']}")
        if not message["left"]:
            run.stop(f"no node is left ({node} is being taken away: {message['why']})")
        self._set_aside(node, message["why"], end_what_runs=False)
        self._expect(message)

    def on_node_note(self, message: Message) -> None:
        self._run.journal.write({"e": "node-note", "node": message["node"], "text": message["text"]})
        self._run.show.note(f"node {message['node']}: {message['text']}")

    def on_node_room(self, message: Message) -> None:
        self.rooms[message["node"]] = message
        self._run.journal.write({"e": "room", "node": message["node"], "status": message["status"], **message["room"]})

    def on_allocation_ending(self, message: Message) -> None:
        """In time: what runs may still finish, and what was never started is named as not run."""
        self._run.show.note(message["why"])
        self._run.stop(message["why"])

    def on_allocation_over(self, message: Message) -> None:
        """What runs now would be killed with everything that could report it."""
        self._run.journal.write({"e": "allocation-over", "why": message["why"]})
        self._run.link.send({"c": "interrupt"})

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

    def _expect(self, message: Message) -> None:
        run = self._run
        run.scheduler.expecting = message["expecting"]
        if not message["expecting"] and not self._complete:
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
