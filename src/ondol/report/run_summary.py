"""What the terminal says about a run after pytest's own summary: only what pytest has no words for."""

from __future__ import annotations

import re
from typing import Any, Protocol

from ondol import words
from ondol.fleet.controller.controller import Controller
from ondol.fleet.model import TASK_SUFFIX
from ondol.fleet.record import load
from ondol.fleet.verdict import Verdict
from ondol.report import run_table

SHOWN = 20


class Run(Protocol):
    """A run that has ended."""

    controller: Controller
    mode: str
    journal: Any
    show: Any


def lines(run: Run) -> list[str]:
    controller = run.controller
    found = [f"workers: {sum(controller.workers.values())}, {run.mode}"]
    for node, room in sorted(controller.nodes.rooms.items()):
        found += [f"{node}: {line.removeprefix('ondol: ')}" for line in room.lines]
    found += [f"set aside: {device}: {why}" for device, why in controller.ledger.quarantined.items()]
    found += _some("flaky", [(n, f.why) for n, f in sorted(controller.finals.items()) if f.flaky], controller)
    found += _left_behind(controller)
    for verdict in (Verdict.DEVICE_LOST, Verdict.NOT_RUN):
        these = [(n, f.why) for n, f in sorted(controller.finals.items()) if f.verdict is verdict]
        found += _some(verdict.value, these, controller)
    found += [f"note: {text}" for text in [*run.show.notes, *controller.deaths]]
    if not controller.tally.adds_up:
        counted = sum(controller.tally.counts.values())
        found.append(f"error: {controller.tally.planned} items were planned and {counted} have a verdict")
    found.append(f"journal: {run.journal} (`ondol report` renders it)")
    return found


def _left_behind(controller: Controller) -> list[str]:
    """The same finding of many items is one line: numbers of descriptors and processes do not make it another."""
    alike: dict[str, list[tuple[int, str]]] = {}
    for item, kind, what in controller.dirty:
        alike.setdefault(re.sub(r"\d+", "0", f"{kind}: {what}"), []).append((item, f"{kind}: {what}"))
    these = []
    for same in alike.values():
        others = len({item for item, _ in same}) - 1
        these.append((same[0][0], f"and {others} more " if others else "", same[0][1]))
    lines = [f"left behind: {controller.items[n].nodeid} {more}({what})" for n, more, what in these[:SHOWN]]
    return lines + ([f"left behind: and {len(these) - SHOWN} more kinds"] if len(these) > SHOWN else [])


def _some(word: str, these: list[tuple[int, str]], controller: Controller) -> list[str]:
    found = [f"{word}: {controller.items[n].nodeid} ({why})" for n, why in these[:SHOWN]]
    if len(these) > SHOWN:
        found.append(f"{word}: and {len(these) - SHOWN} more")
    return found


def write(terminal: Any, run: Run) -> None:
    if any(TASK_SUFFIX in item.nodeid for item in run.controller.items):
        terminal.section("tasks", sep="-")
        for line in run_table.lines(load(run.journal), run.controller.attempts):
            terminal.line(words.printable(line))
    terminal.section("ondol", sep="-")
    for line in lines(run):
        terminal.line(words.printable(line))
