"""A terminal whose last lines are kept below a panel: the panel stands above the log, and the log loses nothing.

    earlier lines of the log          on the terminal for good, in its scrollback
    the panel                         drawn anew again and again
    the last few lines of the log     drawn with it; they move above the panel as new ones come

A scroll region would be simpler, and would throw away every line that leaves it: terminals keep only what scrolls off
their very top.
"""

import re
import shutil
import unicodedata
from collections.abc import Callable
from typing import Any

#: Lines of the log below the panel.
TAIL = 8
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Window:
    """Takes the place of the terminal's file while the panel is shown. `close` leaves the log as if it had not been."""

    def __init__(self, file: Any) -> None:
        self.file = file
        #: The log's text that is not on the terminal for good: whole lines, and the one that is being written.
        self._tail: list[str] = [""]
        #: Rows between the panel's first and the cursor's, as last drawn; None while there is no panel.
        self._below_top: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, text: str) -> int:
        first, *rest = text.split("\n")
        self._tail[-1] += first
        self._tail += rest
        if self._below_top is None:
            self.file.write(text)
            del self._tail[:-1]
        return len(text)

    def flush(self) -> None:
        if self._below_top is None:
            self.file.flush()
        # Else what was written is shown with the next drawing: to draw after every dot would draw all day.

    def draw(self, panel: list[str], paint: Callable[[str], str] = str) -> None:
        """`paint` may add colours to a line that was cut to its width, and nothing else."""
        columns, rows = shutil.get_terminal_size()
        panel = [paint(line) for line in _fitting(panel, rows // 2, columns)]
        room = max(1, min(TAIL, rows - len(panel) - 1))
        if _height(self._tail[-1], columns) > room:
            self.close()  # a line of many rows leaves no place for a panel: after its end
            return
        top = self._to_top(columns)
        settled = self._settle(room, columns)
        shown = [*panel, *self._tail]
        self.file.write(top + "".join(line + "\n" for line in settled) + "\n".join(shown))
        self.file.flush()
        self._below_top = len(panel) + sum(_height(line, columns) for line in self._tail) - 1

    def close(self) -> None:
        if self._below_top is not None:
            self.file.write(self._to_top(shutil.get_terminal_size().columns) + "\n".join(self._tail))
            self.file.flush()
            self._below_top = None
            del self._tail[:-1]

    def _settle(self, room: int, columns: int) -> list[str]:
        """Takes the lines off the tail that no longer fit below the panel."""
        keep, height = 0, 0
        for line in reversed(self._tail):
            height += _height(line, columns)
            if height > room and keep:
                break
            keep += 1
        settled, self._tail = self._tail[:-keep], self._tail[-keep:]
        return settled

    def _to_top(self, columns: int) -> str:
        """To the panel's first row or, before there is one, to the start of the line that is being written."""
        rows = _height(self._tail[-1], columns) - 1 if self._below_top is None else self._below_top
        return "\r" + (f"\x1b[{rows}A" if rows else "") + "\x1b[J"


def _fitting(panel: list[str], most: int, columns: int) -> list[str]:
    """A node with more devices than half the terminal has lines shows the first of them and the last line."""
    if len(panel) > most > 1:
        hidden = len(panel) - most + 1
        panel = [*panel[: most - 2], f"{'':>10}  and {hidden} more", panel[-1]]
    return [line[: columns - 1] for line in panel]


def _height(line: str, columns: int) -> int:
    """Rows that a line takes on the terminal; a wide letter that does not fit at the end of one starts the next."""
    rows, column = 1, 0
    for letter in _CODES.sub("", line):
        width = 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        column += width
        if column > columns:
            rows, column = rows + 1, width
    return rows
