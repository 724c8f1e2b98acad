"""The live view: on a terminal, one line per device above the log; it never writes into a file or a pipe."""

from __future__ import annotations

import time
from typing import Any

from ondol.fleet.controller.controller import Controller
from ondol.report.terminal_window import Window

#: Seconds between two drawings.
PACE = 0.2


class LiveView:
    """Stands above pytest's own output from the first drawing until `close`."""

    def __init__(self, writer: Any, enabled: bool, estimates: dict[int, float]) -> None:
        self._writer = writer
        self.enabled = enabled
        self._estimates = estimates
        self._window: Window | None = None
        self._last = time.monotonic()  # a run that is over at once needs no view

    def moved(self, controller: Controller) -> None:
        if not self.enabled:
            return
        if self._window is None:
            self._window = Window(self._writer._file)
            self._writer._file = self._window
        now = time.monotonic()
        if now - self._last >= PACE:
            self._last = now
            self._window.draw(self.lines(controller, now))

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._writer._file = self._window._file
            self._window = None

    def lines(self, controller: Controller, now: float) -> list[str]:
        """Readable without colour: device, worker generation, items done, item, seconds."""
        found = []
        for name, state in controller.scheduler.slots.items():
            gathered = controller.current.get(name)
            if not state.slot.device and gathered is None:
                continue
            device = state.slot.device or name
            start = f"{name:>10}  #{controller.workers.get(name, 0)}  {controller.done_on[name]:4d} done"
            if state.down:
                found.append(f"{start}  set aside: {controller.ledger.quarantined.get(device, '')}")
            elif gathered is None:
                found.append(f"{start}  idle")
            else:
                nodeid = controller.items[controller.prepares.get(gathered.item, gathered.item)].nodeid
                found.append(f"{start}  {now - gathered.started:6.1f} s  {nodeid}")
        found += [f"{node:>10}  waiting for {what}" for node, what in controller.nodes.waiting.items()]
        done, planned = len(controller.finals), controller.tally.planned
        found.append(f"{done:>10} of {planned} done{self._estimate(controller)}")
        return found

    def _estimate(self, controller: Controller) -> str:
        left = [self._estimates.get(n) for n in range(controller.tally.planned) if n not in controller.finals]
        if not left or any(seconds is None for seconds in left):
            return ""
        slots = sum(1 for s in controller.scheduler.slots.values() if s.slot.device and not s.down) or 1
        return f", about {sum(s for s in left if s) / slots:.0f} s left by history"
