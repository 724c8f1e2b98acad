"""The tables of docs/benchmarks.md as pictures: ratios to the peer, with the spread from the median to the best round.

Made from the page itself, so that a picture cannot say anything else than its table. One bar per row with a ratio, on a
logarithmic scale around 1, the peer: left of it is better than the peer, right of it worse, also where that is us.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
IMAGES = PAGE.parent / "images"
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "µs": 1e-6, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "MiB": 1 << 20}
_TABLE = re.compile(r"<!-- bench: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
WIDTH, LEFT, ROW, TOP = 900, 400, 24, 40
FONT = "font-family='ui-sans-serif, system-ui, sans-serif' font-size='12'"


class Measured(NamedTuple):
    what: str
    ratio: float
    #: Of the best round, where the table has one.
    best: float | None


def tables(text: str) -> dict[str, list[Measured]]:
    """Name of the bench → its rows that have a ratio; the peer's own is 1."""
    found = {}
    for name, table in _TABLE.findall(text):
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"
        ]
        rows = [measured for row in cells[2:] if (measured := _measured(row))]
        if len(rows) > 1:
            found[name] = rows
    return found


def _measured(row: list[str]) -> Measured | None:
    what, median, best, ratio = (row + [""] * 4)[:4]
    number = re.fullmatch(r"(\d+(?:\.\d+)?)(?: x)?", ratio)
    if not number or not float(number[1]):
        return None
    value, least = _number(median), _number(best)
    return Measured(what, float(number[1]), float(number[1]) * least / value if value and least else None)


def _number(text: str) -> float | None:
    found = re.fullmatch(r"([\d.,]+) (\S+)", text)
    return float(found[1].replace(",", "")) * _UNITS[found[2]] if found and found[2] in _UNITS else None


def drawn(name: str, rows: list[Measured]) -> str:
    reach = max(2.0, *(max(r, 1 / r) for row in rows for r in (row.ratio, row.best or row.ratio)))
    scale = (WIDTH - LEFT - 90) / 2 / math.log(reach)
    middle = LEFT + (WIDTH - LEFT - 90) / 2

    def place(ratio: float) -> float:
        return round(middle + math.log(ratio) * scale, 1)

    height = TOP + ROW * len(rows) + 16
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img' "
        f"aria-label='{escape(name)}: ratios to the peer, as in the table'>",
        f"<rect width='{WIDTH}' height='{height}' rx='8' fill='#fffdfa'/>",
        _text(middle - 4, 22, "the peer = 1", "#431407", "middle"),
        _text(LEFT, 22, "better", "#44403c", "start"),
        _text(WIDTH - 90, 22, "worse", "#44403c", "end"),
        f"<line x1='{middle}' x2='{middle}' y1='{TOP - 10}' y2='{height - 10}' stroke='#9a3412'/>",
    ]
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        start, end = sorted((place(1), place(row.ratio)))
        fill = "#a8a29e" if row.ratio == 1 else "#65a30d" if row.ratio < 1 else "#ea580c"
        what = row.what if len(row.what) <= 58 else row.what[:57] + "…"
        parts.append(_text(LEFT - 12, y + 13, what, "#44403c", "end"))
        parts.append(f"<rect x='{start}' y='{y}' width='{max(2.0, round(end - start, 1))}' height='16' fill='{fill}'/>")
        if row.best and row.best != row.ratio:
            x1, x2 = sorted((place(row.best), place(row.ratio)))
            parts.append(f"<line x1='{x1}' x2='{x2}' y1='{y + 8}' y2='{y + 8}' stroke='#1c1917' stroke-width='1.5'/>")
        parts.append(_text(WIDTH - 80, y + 13, f"{row.ratio:g} x", "#1c1917", "start"))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, words: str, colour: str, anchor: str) -> str:
    return f"<text x='{x:g}' y='{y:g}' {FONT} fill='{colour}' text-anchor='{anchor}'>{escape(words)}</text>"


def write() -> None:
    for name, rows in tables(PAGE.read_text()).items():
        (IMAGES / f"bench-{name}.svg").write_text(drawn(name, rows))
