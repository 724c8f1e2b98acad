"""The live view: on a terminal, one line per device above the log; it never writes into a file or a pipe."""

import shutil
import time
from typing import Any

from ondol.fleet.messages import NodeLost
from ondol.fleet.record import RunRecord
from ondol.fleet.verdict import BAD
from ondol.report.terminal_window import Window

#: Seconds between two drawings.
PACE = 0.2
#: Failures that are shown, the newest last; and how many times its usual duration makes an item late.
SHOWN, LATE = 3, 2


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
            lines = self.lines(record, time.time(), shutil.get_terminal_size().columns)
            self._window.draw(lines, self._paint if self._terminal.colours else str)

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._terminal.file = self._window.file
            self._window = None

    def lines(self, record: RunRecord, now: float, columns: int = 80) -> list[str]:
        """Readable without colour: device, worker generation, items done, seconds against the usual ones, item."""
        found = []
        aside = {one.device: f"quarantined: {one.why}" for one in record.quarantines}
        last = {event.node: event for event in record.nodes}
        lost = {node for node, event in last.items() if isinstance(event, NodeLost)}
        for name, slot in record.slots.items():
            start = f"{name:>10}  #{slot.workers}  {slot.done:4d} done"
            if name in record.running:
                item, attempt = record.running[name]
                nodeid = record.items[item].nodeid
                found.append(_ending(f"{start}  {self._age(nodeid, now - attempt.started)}", nodeid, columns))
            elif name in record.preparing:
                found.append(_ending(f"{start}  prepares", record.items[record.preparing[name]].nodeid, columns))
            elif slot.device:
                away = "its node was lost" if slot.device.partition("/")[0] in lost else "idle"
                found.append(f"{start}  {aside.get(slot.device, away)}")
        found += [f"{node:>10}  waiting for {what}" for node, what in record.waiting.items()]
        bad = [item for item in record.items if item.bad]
        newest = sorted(bad, key=lambda item: item.attempts[-1].started if item.attempts else 0.0)[-SHOWN:]
        found += [_ending(f"{item.verdict:>11}", item.nodeid, columns) for item in newest]
        left = [item.nodeid for item in record.items if not item.verdict]
        done, red = len(record.items) - len(left), f", {len(bad)} failed" if bad else ""
        found.append(f"{done:>10} of {len(record.items)} done{red}{self._estimate(left, record, aside)}")
        return found

    def _age(self, nodeid: str, seconds: float) -> str:
        usual = self._estimates.get(nodeid)
        if usual is None:
            return f"{seconds:6.1f} s"
        late = " late" if seconds > LATE * usual + 1 else ""
        return f"{seconds:6.1f} of {usual:.1f} s{late}"

    def _paint(self, line: str) -> str:
        """Failures red, what takes much longer than it should yellow."""
        first = line.split(maxsplit=1)[:1]
        code = "31" if first and first[0] in BAD else "33" if " s late  " in line else ""
        return f"\x1b[{code}m{line}\x1b[0m" if code else line

    def _estimate(self, left: list[str], record: RunRecord, aside: dict[str, str]) -> str:
        """What has no history counts as the others' mean, if those are the larger part."""
        known = [self._estimates[nodeid] for nodeid in left if nodeid in self._estimates]
        if not left or len(known) * 2 < len(left):
            return ""
        slots = sum(1 for slot in record.slots.values() if slot.device and slot.device not in aside) or 1
        return f", about {sum(known) * len(left) / len(known) / slots:.0f} s left by history"


def _ending(start: str, nodeid: str, columns: int) -> str:
    """The end of a long name tells more than its beginning."""
    room = columns - 1 - len(start) - 2
    return f"{start}  {nodeid if len(nodeid) <= room else '…' + nodeid[max(0, len(nodeid) - room + 1) :]}"
