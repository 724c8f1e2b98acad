"""The controller's one link to the agents of all nodes: routes by slot, merges events, and turns the loss of an agent
into an event about its node.
"""

import json
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ondol import __version__
from ondol.engines.api import Engine
from ondol.engines.launch import CLOSE_GRACE, TERM_GRACE, Launch
from ondol.engines.node import Node
from ondol.fleet import messages, wire
from ondol.fleet.messages import AgentEvent, Buried, Event, OfNode, Outlook, ToNode, never
from ondol.fleet.model import node_of
from ondol.fleet.starts import FORMAT

#: An agent is started again on a node that lost it, so many times.
MAX_LOSSES = 3
#: How often an engine is asked about time and queues, in seconds.
PACE = 5.0
#: After the last item a node harvests and publishes; after so long it is cancelled.
HARVEST_LIMIT = 300.0
#: A launch command that SIGKILL does not end hangs in the kernel: nobody waits for it longer than this.
BURY_LIMIT = 30.0


@dataclass
class Terms:
    """What the run asks of its nodes."""

    #: What every node program is told first.
    instructions: dict[str, Any]
    #: What was collected here, and what an agent needs to begin; None while this process collects.
    go: messages.Go | None = None
    workers_per_device: int = 1
    #: Items that must be prepared; at most so many slots for that.
    prepares: int = 0
    #: Seconds. How long a launch command may wait, a collection may stand still, a node may be silent.
    engine_timeout: float = 0.0
    collect_timeout: float = 600.0
    silence: float = 120.0
    #: So long before the end of the allocation nothing more is handed out.
    margin: float = 60.0
    show_errors: bool = False


@dataclass
class Links:
    """All nodes of one engine."""

    engine: Engine
    terms: Terms
    nodes: dict[str, Node] = field(default_factory=dict)
    finishing: bool = False
    clock: Callable[[], float] = time.monotonic
    _events: list[Event] = field(default_factory=list)
    #: They begin again when this process has collected.
    _again: list[Node] = field(default_factory=list)
    _asked_engine: float = float("-inf")
    _opened: float = 0.0
    _refused: bool = False
    _warned: set[type] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._opened = self.clock()
        self.engine.open()

    # ------------------------------------------------------------------ what the controller calls

    @property
    def gone(self) -> bool:
        return self.finishing and not any(node.running for node in self.nodes.values())

    def send(self, message: ToNode) -> None:
        match message:
            case messages.Finish():
                self._finish(good=message.good)
            case messages.Kill() | messages.Interrupt():
                for node in self.nodes.values():
                    if node.listens:
                        node.send(message)
                    if isinstance(message, messages.Kill):
                        node.launch.cancel(self.clock())
            case messages.Ping() | messages.Go():
                raise AssertionError("these are ours to send")
            case messages.Warm() | messages.Join():
                raise AssertionError("these are for an agent that was started before the collection")
            case _:
                place = message.device if isinstance(message, messages.Probe) else message.slot
                node = self.nodes[node_of(place)]
                if node.listens:
                    node.send(message)

    def agree(self, go: messages.Go) -> None:
        """This process has collected: whoever was ready before it hears now what is to be run."""
        self.terms.go = go
        for node in self.nodes.values():
            if node.state == "collecting" and node.offer is not None:
                node.progress = self.clock()
                node.send(go)

    def receive(self, timeout: float | None, also: int | None = None) -> list[Event]:
        self.listen(0.0 if self._events else timeout, also)
        events, self._events = self._events, []
        return events

    def listen(self, timeout: float | None, also: int | None = None) -> None:
        """Do what there is to do, and keep what is heard for who receives it."""
        for node in self.nodes.values():
            if node.noticed:  # and by now the controller has taken back what it handed out
                self._leave(node, good=False)  # how the run ends is not known yet
        self._meet_new_nodes()
        self._wait(timeout, also)
        for node in list(self.nodes.values()):
            self._look_at(node)
        self._look_at_the_engine()

    def dismiss(self) -> None:
        """Nothing is run: who has begun to collect leaves by itself, and everything is given back."""
        self._wait(0.0, None)
        for node in self.nodes.values():
            if node.state == "collecting":
                node.launch.dismiss(self.clock())
        self.bury()

    def bury(self) -> Buried:
        """End every launch command and give everything back."""
        self.finishing = True
        left = [node for node in self.nodes.values() if node.running]
        for node in left:
            node.launch.cancel(self.clock())
        give_up = self.clock() + BURY_LIMIT
        while self.clock() < give_up and any(not node.launch.ended() for node in left):
            for node in left:
                node.launch.read()  # a carrier that cannot write does not end
                node.launch.hurry(self.clock())
            select.select([], [], [], 0.02)
        problems = [f"{node.name}: {node.problem}" for node in left if not node.clean]
        for node in left:
            self._close(node)
        self.engine.close()
        return Buried(not problems, "; ".join(problems))

    # ------------------------------------------------------------------ nodes come

    def _meet_new_nodes(self) -> None:
        if self.finishing:
            return
        for name in self.engine.nodes():
            if name not in self.nodes:
                self._start(name)
        while self._again and self.terms.go is not None:
            first = self._again.pop()
            self._start(first.name, first.losses, first.spoilt)
        if self.engine.refused() and not self._refused:
            self._refused = True
            self._out(self.engine.name, self.engine.refused())

    def _start(self, name: str, losses: int = 0, spoilt: str = "") -> None:
        launch = Launch(self.engine.command(name), self.engine.environment(), show_errors=self.terms.show_errors)
        node = self.nodes[name] = Node(name, launch, wire.new_token(), self.clock(), losses)
        node.early, node.spoilt = self.terms.go is None, spoilt
        first = {**self.terms.instructions, "format": FORMAT, "token": node.token.decode(), "node": name}
        first |= {"silence": self.terms.silence, "arguments": [*first["arguments"], *self.engine.arguments(name)]}
        launch.send(json.dumps(first).encode() + b"\n")
        self._events.append(messages.NodeWaits(name, self.engine.why_waiting(name) or "its agent"))

    def outlook(self) -> Outlook:
        coming = len(self._again) + (bool(self.engine.pending()) and not self._refused)
        # A command that is ending may be started again: what came of it is reported when it has ended.
        unsure = [n for n in self.nodes.values() if n.on_its_way or n.state == "ending"]
        up = [n for n in self.nodes.values() if n.state == "up"]
        left = coming + sum(not node.noticed for node in (*unsure, *up))
        return Outlook(not self.finishing and bool(coming or unsure), left)

    def _out(self, node: str, why: str, log: str = "") -> None:
        self._events += [messages.NodeOut(node, why, log), self.outlook()]

    # ------------------------------------------------------------------ what nodes say

    def _wait(self, timeout: float | None, also: int | None) -> None:
        launches = {n.launch.reading: n for n in self.nodes.values() if n.launch.reading >= 0}
        writing = [n.launch.writing for n in launches.values() if n.launch.has_more_to_send]
        watched = [*launches, *([also] if also is not None else [])]
        limit = min(0.5, 0.5 if timeout is None else timeout)
        readable, writable, _ = select.select(watched, writing, [], limit)
        for node in launches.values():
            if node.launch.writing in writable:
                node.launch.flush()
            if node.launch.reading in readable:
                self._hear(node)

    def _hear(self, node: Node) -> None:
        data, open_ = node.launch.read()
        for message in node.decoder.feed(data):
            node.heard, node.owes = self.clock(), None
            if node.state == "ending":
                continue  # it was given up: its items run elsewhere by now
            if isinstance(message, OfNode):
                self._handle(node, message)
            elif isinstance(message, AgentEvent) and node.listens:
                self._events.append(message)
        if not open_:
            self._ended(node)

    def _handle(self, node: Node, message: OfNode) -> None:  # noqa: C901 - one line per message
        match message:
            case messages.Here():
                self._on_here(node, message)
            case messages.Collecting():
                node.file, node.progress = message.file, self.clock()
            case messages.Collected():
                self._on_collected(node, message)
            case messages.Ready():
                self._on_ready(node)
            case messages.NodeNote() | messages.NodeRoom():
                self._events.append(message)
            case messages.Notice():
                self._on_notice(node, message)
            case messages.Gone():
                self._on_gone(node, message)
            case messages.Harvest():
                if node.listens:
                    node.enter("harvesting", self.clock())
            case messages.Bye():
                node.clean = True
            case _:
                never(message)

    def _on_here(self, node: Node, message: messages.Here) -> None:
        now = self.clock()
        node.waited = now - node.since
        node.enter("collecting", now)
        if message.version != __version__:
            node.hopeless = True
            self._give_up(node, f"it runs Ondol {message.version}, the controller {__version__}")
            return
        self._events.append(messages.NodeWaits(node.name, "its collection"))

    def _on_collected(self, node: Node, message: messages.Collected) -> None:
        node.file, node.progress = "", self.clock()
        if message.errors:
            node.hopeless = not node.early
            self._give_up(node, f"collection failed there: {message.errors[0]}")
            return
        node.offer, node.offered = message, self.clock()
        if self.terms.go is not None:
            node.send(self.terms.go)

    def _on_ready(self, node: Node) -> None:
        """Its agent listens."""
        now, offer = self.clock(), node.offer
        assert offer is not None
        node.collected = node.offered - node.since
        node.early = False
        node.enter("up", now)
        if node.spoilt:
            text = f"it collected twice: beside the controller's own collection that had failed ({node.spoilt})"
            self._events.append(messages.NodeNote(node.name, f"{text}; with --collect-first it waits and does it once"))
        devices = [{**d, "name": f"{node.name}/{d['name']}", "node": node.name} for d in offer.devices]
        workers = self.terms.workers_per_device
        slots = {
            d["name"]: [d["name"] if workers == 1 else f"{d['name']}.{n}" for n in range(workers)] for d in devices
        }
        prepare = [f"{node.name}/prepare{n}" for n in range(min(self.terms.prepares, offer.cpus))]
        told = (offer.host, offer.mode, offer.python, round(node.waited, 3), round(node.collected, 3))
        self._events += [messages.NodeUp(node.name, devices, slots, prepare, *told), self.outlook()]

    def _on_notice(self, node: Node, message: messages.Notice) -> None:
        if node.noticed or node.state != "up":
            return
        node.noticed = True
        why = self.engine.why_gone(node.name).why or message.why
        self._events += [messages.NodeNotice(node.name, why), self.outlook()]

    def _on_gone(self, node: Node, message: messages.Gone) -> None:
        """The node program's own last words about what went wrong."""
        node.unexplained = not node.problem and not message.hopeless
        node.problem = node.problem or message.why
        # What ends a collecting process would end the next one, unless our own collection was in its way.
        node.hopeless = node.hopeless or (not node.early and (message.hopeless or node.state == "collecting"))

    # ------------------------------------------------------------------ nodes go

    def _finish(self, *, good: bool) -> None:
        self.finishing = True
        for node in self.nodes.values():
            if node.state == "up":
                self._leave(node, good=good)
            elif node.on_its_way:
                node.clean = True  # nobody needs it any more
                node.launch.cancel(self.clock())
                node.enter("ending", self.clock())

    def _leave(self, node: Node, *, good: bool) -> None:
        if node.state == "up":
            node.send(messages.Finish(good))
            node.enter("leaving", self.clock())

    def _give_up(self, node: Node, why: str) -> None:
        """Cancel its command; the rest follows when that has ended."""
        node.problem = node.problem or why
        was_up = node.listens
        node.launch.cancel(self.clock())
        node.enter("ending", self.clock())
        if was_up:
            self._lost(node, self.engine.why_gone(node.name).machine, node.problem)

    def _lost(self, node: Node, machine: bool, why: str) -> None:
        how: messages.How = "device-lost" if machine or node.noticed else "crashed"
        node.losses += 1
        self._events += [messages.NodeLost(node.name, why, how), self.outlook()]

    def _ended(self, node: Node) -> None:
        """The stream from its launch command is at its end; the command itself ends about now."""
        launch = node.launch
        if not launch.ended():
            os.close(launch.reading)
            launch.reading = -1
            launch.expect_end(self.clock())
        was = node.state
        node.enter("ending", self.clock())
        if was in {"up", "leaving", "harvesting"} and not node.clean:
            gone = self.engine.why_gone(node.name)
            node.problem = node.problem or gone.why or launch.how()
            self._lost(node, gone.machine, node.problem)
        if launch.ended():
            self._after(node)

    def _after(self, node: Node) -> None:
        """Its launch command has ended: start another agent there, or leave the node out."""
        gone = self.engine.why_gone(node.name)
        log = node.launch.log()
        why = node.problem or gone.why or _last_line(log) or node.launch.how()
        if node.unexplained and _last_line(log):
            why = f"{why}; it said: {_last_line(log)}"
        if gone.why and gone.why not in why:
            why = f"{why} ({gone.why})"
        if node.file:
            why = f"collection of {node.file} failed there: {why}"
        self._close(node)
        if node.clean or self.finishing:
            if node.noticed and not self.finishing:
                self._out(node.name, gone.why or "it was taken away")
            return
        if node.early and node.problem and gone.again and not node.hopeless:
            node.spoilt = why
            self._again.append(node)
            return
        if not node.collected:
            node.losses += 1
        if gone.again and not node.hopeless and not node.noticed and node.losses < MAX_LOSSES:
            self._start(node.name, node.losses)
            return
        times = f"lost {node.losses} times, at last: " if node.losses > 1 else ""
        self._out(node.name, f"{times}{why}", log)

    def _close(self, node: Node) -> None:
        node.launch.close()
        node.enter("over", self.clock())

    # ------------------------------------------------------------------ the clock

    def _look_at(self, node: Node) -> None:
        launch, now = node.launch, self.clock()
        if not node.running:
            return
        launch.hurry(now)
        if node.state == "ending":
            launch.read()
            if launch.ended() or self._cannot_be_ended(node, now):
                self._after(node)
            return
        broken = self._overdue(node, now)
        if broken:
            self._give_up(node, broken)
        elif node.state != "waiting" and self.terms.silence and now - node.asked > self.terms.silence / 4:
            node.asked, node.owes = now, node.owes or now
            node.send(messages.Ping())

    def _cannot_be_ended(self, node: Node, now: float) -> bool:
        """An unkillable step: whoever waited for it, with items that wait for this node, would wait for ever."""
        if now - node.since < TERM_GRACE + CLOSE_GRACE + BURY_LIMIT:
            return False
        # Nothing new is started there: what cannot be killed may hold the devices.
        node.hopeless = True
        node.problem = f"{node.problem or 'it was cancelled'}; its launch command could not be killed"
        return True

    def _overdue(self, node: Node, now: float) -> str:
        """Which of its limits it has broken, in words."""
        terms = self.terms
        if node.state == "waiting":
            if terms.engine_timeout and now - node.since > terms.engine_timeout:
                what = self.engine.why_waiting(node.name)
                node.hopeless = True
                return f"no agent within {terms.engine_timeout:g} s" + (f" ({what})" if what else "")
            return ""
        ours = node.offer is not None and terms.go is None  # it waits for us
        moves = ours or not terms.collect_timeout or now - node.progress <= terms.collect_timeout
        if node.state == "collecting" and not moves:
            node.hopeless = True
            return f"no progress for {terms.collect_timeout:g} s"
        if node.state == "harvesting" and now - node.since > HARVEST_LIMIT:
            return f"its room was not closed within {HARVEST_LIMIT:g} s"
        quiet = terms.silence and node.listens and now - node.heard > terms.silence
        if quiet and node.owes and now - node.owes > terms.silence / 2:
            return f"silent for {terms.silence:g} s"
        return ""

    def _look_at_the_engine(self) -> None:
        now = self.clock()
        if self.finishing or now - self._asked_engine < PACE:
            return
        self._asked_engine = now
        what = self.engine.pending()
        if what:
            self._events.append(messages.EngineWaits(self.engine.name, what))
            limit = self.terms.engine_timeout
            if limit and now - self._opened > limit and not self._refused:
                self._refused = True
                self._out(self.engine.name, f"no node within {limit:g} s: {what}")
        for node in self.nodes.values():
            if node.state == "waiting" and (what := self.engine.why_waiting(node.name)):
                self._events.append(messages.NodeWaits(node.name, what))
        self._look_at_the_time()

    def _look_at_the_time(self) -> None:
        left = self.engine.seconds_left()
        if left is None:
            return
        stages = ((messages.AllocationEnding, self.terms.margin), (messages.AllocationOver, self.terms.margin / 4))
        for kind, limit in stages:
            if left <= limit and kind not in self._warned:
                self._warned.add(kind)
                self._events.append(kind(f"the allocation's time limit is near ({left:.0f} s left)"))


def _last_line(text: str) -> str:
    """That says something: docker's last words are where its help is."""
    lines = [line for line in text.splitlines() if line.strip() and "--help" not in line]
    return lines[-1].strip() if lines else ""
