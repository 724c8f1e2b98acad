"""The live view: on a terminal, one line per device below the log; it never writes into a file or a pipe."""

from __future__ import annotations

import time
from typing import Any

from ondol.fleet.controller import Controller

#: Seconds between two drawings.
PACE = 0.2


class LiveView:
    """Draws below pytest's own output and erases itself before pytest writes again."""

    def __init__(self, writer: Any, enabled: bool, estimates: dict[int, float]) -> None:
        self._writer = writer
        self._enabled = enabled
        self._estimates = estimates
        self._drawn = 0
        self._last = 0.0

    def moved(self, controller: Controller) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._last < PACE:
            return
        self._last = now
        lines = self.lines(controller, now)
        self.erase()
        self._draw(lines)

    def lines(self, controller: Controller, now: float) -> list[str]:
        """Readable without colour: device, worker generation, item, seconds."""
        found = []
        for name, state in controller.scheduler.slots.items():
            gathered = controller.current.get(name)
            if not state.slot.device and gathered is None:
                continue
            device = state.slot.device or name
            generation = controller.workers.get(name, 0)
            if state.down:
                found.append(f"{device:>10}  set aside: {controller.ledger.quarantined.get(device, '')}")
            elif gathered is None:
                found.append(f"{device:>10}  #{generation}  idle")
            else:
                nodeid = controller.items[controller.prepares.get(gathered.item, gathered.item)].nodeid
                found.append(f"{device:>10}  #{generation}  {now - gathered.started:6.1f} s  {nodeid}")
        done, planned = len(controller.finals), controller.tally.planned
        found.append(f"{done:>10} of {planned} done{self._estimate(controller)}")
        return found

    def _estimate(self, controller: Controller) -> str:
        left = [self._estimates.get(n) for n in range(controller.tally.planned) if n not in controller.finals]
        if not left or any(seconds is None for seconds in left):
            return ""
        slots = sum(1 for s in controller.scheduler.slots.values() if s.slot.device and not s.down) or 1
        return f", about {sum(s for s in left if s) / slots:.0f} s left by history"

    def _draw(self, lines: list[str]) -> None:
        width = max(20, int(self._writer.fullwidth) - 1)
        text = "".join("\n" + line[:width] for line in lines)
        column = int(self._writer.width_of_current_line) + 1
        # Back to where pytest's line stood, so that its dots go on as if nothing had happened.
        self._writer._file.write(f"{text}\x1b[{len(lines)}A\x1b[{column}G")
        self._writer._file.flush()
        self._drawn = len(lines)

    def erase(self) -> None:
        if self._drawn:
            self._writer._file.write("\x1b[J")
            self._writer._file.flush()
            self._drawn = 0
