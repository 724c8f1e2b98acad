"""The live view: on a terminal, one line per device above the log; it never writes into a file or a pipe."""

from __future__ import annotations

import time
from typing import Any

from ondol.fleet.messages import NodeLost
from ondol.fleet.record import RunRecord
from ondol.report.terminal_window import Window

#: Seconds between two drawings.
PACE = 0.2


class LiveView:
    """Stands above pytest's own output from the first drawing until `close`; `terminal` leads to that output."""

    def __init__(self, terminal: Any, estimates: dict[str, float]) -> None:
        self._terminal = terminal
        self._estimates = estimates
        self._window: Window | None = None
        self._last = time.monotonic()  # a run that is over at once needs no view

    def moved(self, record: RunRecord) -> None:
        if self._window is None:
            self._window = Window(self._terminal.file)
            self._terminal.file = self._window
        now = time.monotonic()
        if now - self._last >= PACE:
            self._last = now
            self._window.draw(self.lines(record, time.time()))

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._terminal.file = self._window.file
            self._window = None

    def lines(self, record: RunRecord, now: float) -> list[str]:
        """Readable without colour: device, worker generation, items done, item, seconds."""
        found = []
        aside = {one.device: f"set aside: {one.why}" for one in record.quarantines}
        last = {event.node: event for event in record.nodes}
        lost = {node for node, event in last.items() if isinstance(event, NodeLost)}
        for name, slot in record.slots.items():
            start = f"{name:>10}  #{slot.workers}  {slot.done:4d} done"
            if name in record.running:
                item, attempt = record.running[name]
                found.append(f"{start}  {now - attempt.started:6.1f} s  {record.items[item].nodeid}")
            elif name in record.preparing:
                found.append(f"{start}  prepares  {record.items[record.preparing[name]].nodeid}")
            elif slot.device:
                away = "its node was lost" if slot.device.partition("/")[0] in lost else "idle"
                found.append(f"{start}  {aside.get(slot.device, away)}")
        found += [f"{node:>10}  waiting for {what}" for node, what in record.waiting.items()]
        left = [item.nodeid for item in record.items if not item.verdict]
        done = len(record.items) - len(left)
        found.append(f"{done:>10} of {len(record.items)} done{self._estimate(left, record, aside)}")
        return found

    def _estimate(self, left: list[str], record: RunRecord, aside: dict[str, str]) -> str:
        if not left or any(nodeid not in self._estimates for nodeid in left):
            return ""
        slots = sum(1 for slot in record.slots.values() if slot.device and slot.device not in aside) or 1
        return f", about {sum(self._estimates[nodeid] for nodeid in left) / slots:.0f} s left by history"
