"""A node leaves while something is on its way to it: the order of messages that only a busy machine makes by itself, made
here by a link that says exactly what it is told to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet import messages, schedule
from ondol.fleet.controller.controller import Controller, RunSettings
from ondol.fleet.controller.losses import Action
from ondol.fleet.controller.nodes import Nodes
from ondol.fleet.devices import Fleet
from ondol.fleet.interrupts import Interrupts
from ondol.fleet.journal import Planned as InJournal
from ondol.fleet.messages import Ended, Event, RunItem, ToNode
from ondol.fleet.model import Work
from ondol.fleet.record import Book

WHY = "Slurm job 7 is CANCELLED"


def up(node: str, devices: int = 1) -> list[Event]:
    named = [f"{node}/cpu{number}" for number in range(devices)]
    offered = [{"name": name, "node": node, "probe": []} for name in named]
    return [messages.NodeUp(node, offered, {name: [name] for name in named}), messages.Outlook(False, 2)]


def notice(node: str, left: int) -> list[Event]:
    return [messages.NodeNotice(node, WHY), messages.Outlook(False, left)]


def out(node: str, left: int) -> list[Event]:
    return [messages.NodeOut(node, WHY, ""), messages.Outlook(False, left)]


def begun(order: RunItem) -> Event:
    return messages.Started(order.slot, "1", order.item, order.attempt, False)


def passed(order: RunItem) -> list[Event]:
    """What an agent says about an item that it was sent and that passed."""
    report = {"when": "call", "outcome": "passed", "duration": 0.0, "nodeid": order.nodeid, "sections": []}
    block = messages.as_block([messages.to_json(report).encode()])
    ended = Ended(order.slot, "1", order.item, order.attempt, "done", block=block)
    over = messages.WorkerEnded(order.slot, "1", "", False, 1)
    return [begun(order), ended, *([over] if order.last else [])]


class ScriptedLink:
    """`script` yields what arrives next; it may look at `sent`. What a node in `works` is sent passes at once."""

    def __init__(self) -> None:
        self.sent: list[ToNode] = []
        self.script: Iterator[list[Event]] = iter(())
        self.works: set[str] = set()
        self.gone = False
        self._answers: list[Event] = []

    def send(self, message: ToNode) -> None:
        self.sent.append(message)
        if isinstance(message, RunItem) and message.slot.removeprefix("gang:").partition("/")[0] in self.works:
            self._answers += passed(message)
        self.gone = isinstance(message, messages.Finish)

    def receive(self, _timeout: float | None, _also: int | None = None) -> list[Event]:
        answers, self._answers = self._answers, []
        if answers:
            return answers
        said = next(self.script, None)
        assert said is not None, f"the run waits for ever; it had sent {self.sent[-2:]}"
        return said

    def bury(self) -> messages.Buried:
        return messages.Buried(True, "")

    def orders(self, node: str) -> list[RunItem]:
        sent = [m for m in self.sent if isinstance(m, RunItem)]
        return [m for m in sent if m.slot.removeprefix("gang:").startswith(f"{node}/")]


class Silent:
    """A `Show` that shows nothing."""

    def wants_to_stop(self) -> str:
        return ""

    def given(self, _env: dict[str, str]) -> dict[str, str]:
        return {}

    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: None


def run(tmp_path: Path, link: ScriptedLink, works: list[Work]) -> Controller:
    book = Book(tmp_path / "journal.jsonl")
    book.write(InJournal([f"test_a.py::test_{work.index}" for work in works]))
    scheduler = schedule.build(works, [], [])
    scheduler.expecting = True
    with Interrupts() as interrupts:
        made = Controller(Fleet(), scheduler, lambda: link, book, Silent(), RunSettings(), interrupts)
        made.run()
    book.close()
    return made


def verdicts(controller: Controller) -> list[str]:
    return [item.verdict for item in controller.record.items]


#: What had become of the item when its node left: sent and never seen, or begun and never ended.
LEAVES = {"on its way": lambda _order: [], "begun": lambda order: [begun(order)]}


@pytest.mark.parametrize("devices", [1, 2], ids=["one device", "two devices"])
@pytest.mark.parametrize("state", LEAVES)
def test_an_item_on_its_way_to_a_node_that_has_left_is_waited_for(tmp_path: Path, state: str, devices: int) -> None:
    """It goes to the node that is left, and passes there, without having been blamed."""
    link = ScriptedLink()

    def script() -> Iterator[list[Event]]:
        yield up("n1", 2)
        (order,) = link.orders("n1")
        yield LEAVES[state](order)
        yield [*notice("n1", 1), *up("n2", 2)]
        link.works.add("n2")
        yield out("n1", 1)

    link.script = script()
    controller = run(tmp_path, link, [Work(0, "test_a.py", devices=devices)])
    assert verdicts(controller) == ["passed"]
    assert [order.item for order in link.orders("n2")] == [0]
    assert len(controller.record.items[0].attempts) == (1 if state == "on its way" else 2)
    assert [e.node for e in controller.record.nodes if isinstance(e, messages.NodeOut)] == ["n1"]


def test_a_node_that_is_told_to_go_gets_no_more_work(tmp_path: Path) -> None:
    """What runs there ends, what it was handed ahead is asked for, and although it is idle then it gets nothing."""
    link = ScriptedLink()
    handed: list[RunItem] = []

    def script() -> Iterator[list[Event]]:
        yield [*up("n1"), *up("n2")]
        handed.extend(link.orders("n1"))
        runs, *waits = handed
        yield [begun(runs)]
        yield notice("n1", 1)
        assert messages.Revoke("n1/cpu0") in link.sent
        yield [messages.Revoked("n1/cpu0", [order.item for order in waits])]
        yield passed(runs)[1:]
        yield out("n1", 1)
        link.works.add("n2")
        yield [event for order in link.orders("n2") for event in passed(order)]

    link.script = script()
    controller = run(tmp_path, link, [Work(n, "test_a.py") for n in range(8)])
    assert verdicts(controller) == ["passed"] * 8
    assert link.orders("n1") == handed
    assert all(len(item.attempts) == 1 for item in controller.record.items)


@pytest.mark.parametrize("state", LEAVES)
def test_the_last_node_leaves_and_what_was_on_its_way_is_waited_for(tmp_path: Path, state: str) -> None:
    link = ScriptedLink()

    def script() -> Iterator[list[Event]]:
        yield up("n1")
        yield LEAVES[state](link.orders("n1")[0])
        yield notice("n1", 0)
        yield out("n1", 0)

    link.script = script()
    controller = run(tmp_path, link, [Work(n, "test_a.py") for n in range(3)])
    assert verdicts(controller) == ["not-run" if state == "on its way" else "device-lost", "not-run", "not-run"]
    assert WHY in controller.stop_reason


@pytest.mark.parametrize("in_time", [True, False], ids=["ends in time", "does not end"])
def test_what_runs_at_the_end_of_the_allocation_is_ended_and_named(tmp_path: Path, in_time: bool) -> None:
    """Near the end nothing more is handed out, and what runs may end; at the end it is ended while it can be reported."""
    link = ScriptedLink()

    def script() -> Iterator[list[Event]]:
        yield up("n1")
        runs, *waits = link.orders("n1")
        yield [begun(runs)]
        yield [messages.AllocationEnding("59 s left")]
        assert link.sent[-1] == messages.Revoke("n1/cpu0")
        yield [messages.Revoked("n1/cpu0", [order.item for order in waits])]
        if in_time:
            yield passed(runs)[1:]
        yield [messages.AllocationOver("14 s left")]
        assert isinstance(link.sent[-1], messages.Interrupt)
        yield [Ended(runs.slot, "1", runs.item, runs.attempt, "interrupted", "interrupted while it ran")]

    link.script = script()
    controller = run(tmp_path, link, [Work(n, "test_a.py") for n in range(4)])
    assert verdicts(controller) == ["passed" if in_time else "not-run", "not-run", "not-run", "not-run"]
    assert controller.stop_reason == "59 s left"


def test_the_tests_turn_red_without_the_guard_against_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before: a node that is left out has its devices set aside, and nothing else happens."""

    def only_set_aside(self: Nodes, event: messages.NodeOut) -> list[Action]:
        return self._set_aside(event.node, event.why)

    monkeypatch.setattr(Nodes, "_out", only_set_aside)
    for number, devices in enumerate((1, 2)):
        with pytest.raises(AssertionError, match="waits for ever"):
            test_an_item_on_its_way_to_a_node_that_has_left_is_waited_for(tmp_path / str(number), "on its way", devices)
