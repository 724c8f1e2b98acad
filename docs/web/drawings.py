"""The two walks as drawings: what becomes of a compiled kernel, and of a test. `python docs/web/drawings.py`.

Boxes and arrows from two lists, so that a changed word costs a word and not an afternoon with a drawing program. The
card behind them is light in both schemes of the site.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parents[1] / "images"
WIDTH, LINE, FONT = 860, 18, "font-family='ui-sans-serif, system-ui, sans-serif'"


class Box(NamedTuple):
    x: int
    y: int
    width: int
    title: str
    lines: tuple[str, ...]
    fill: str = "#fff7ed"

    @property
    def height(self) -> int:
        return 34 + LINE * len(self.lines)


class Arrow(NamedTuple):
    """From a point to a point, with words beside its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    words: str = ""
    dx: int = 8
    dy: int = 0


SHARED, CAREFUL, PLAIN = "#ffedd5", "#ecfccb", "#f8fafc"
KERNEL = (
    "What becomes of a compiled kernel",
    330,
    [
        Box(
            20,
            60,
            190,
            "store",
            ("one directory, many users", "a lane for each of them", "packs with checksums"),
            SHARED,
        ),
        Box(
            330,
            60,
            220,
            "room of this job",
            ("private, mode 0700", "each tool's cache, TMPDIR", "gone when the job ends"),
            CAREFUL,
        ),
        Box(
            650,
            60,
            190,
            "your command",
            ("pytest, python, make …", "its own output, signals", "and exit status"),
            PLAIN,
        ),
        Box(330, 220, 220, "harvest", ("beside the command:", "whole? paths taken out"), CAREFUL),
        Box(20, 220, 190, "may this job publish?", ("the CI event decides;", "settings only narrow it"), SHARED),
    ],
    [
        Arrow(210, 90, 330, 90, "fill: checked", 12, -8),
        Arrow(550, 90, 650, 90, "reads", 26, -8),
        Arrow(650, 130, 550, 130, "compiles", 20, 20),
        Arrow(440, 148, 440, 220, "new entries"),
        Arrow(330, 255, 210, 255, "packs", 40, -8),
        Arrow(115, 220, 115, 148, "publish: whole, never replaced", 8, 8),
    ],
)
TEST = (
    "What becomes of a test",
    310,
    [
        Box(20, 60, 200, "controller: pytest", ("collects once", "hands out, journals, shows"), SHARED),
        Box(330, 60, 210, "agent", ("runs no user code", "keeps clock and output", "ends what hangs"), CAREFUL),
        Box(640, 60, 200, "worker on device 0", ("forked: all is imported", "runs one item at a time"), PLAIN),
        Box(640, 170, 200, "worker on device 1", ("a crash costs one attempt", "and a fork"), PLAIN),
        Box(20, 220, 200, "journal", ("written before it is shown", "renders after kill -9"), SHARED),
        Box(330, 220, 210, "verdict", ("one per test; passed on", "retry is flaky, and visible"), CAREFUL),
    ],
    [
        Arrow(220, 85, 330, 85, "items ahead", 16, -8),
        Arrow(330, 115, 220, 115, "results", 30, 20),
        Arrow(540, 85, 640, 85, "fork", 36, -8),
        Arrow(540, 125, 640, 195, "fork, kill", -10, 22),
        Arrow(120, 130, 120, 220, "first"),
        Arrow(220, 255, 330, 255, "judge", 36, -8),
    ],
)


def drawn(title: str, height: int, boxes: list[Box], arrows: list[Arrow]) -> str:
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img' "
        f"aria-label='{escape(title)}'>",
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
        "<path d='M0 0 L8 4 L0 8 z' fill='#9a3412'/></marker></defs>",
        f"<rect width='{WIDTH}' height='{height}' rx='10' fill='#fffdfa'/>",
        f"<text x='20' y='34' {FONT} font-size='18' font-weight='700' fill='#431407'>{escape(title)}</text>",
    ]
    for box in boxes:
        parts.append(
            f"<rect x='{box.x}' y='{box.y}' width='{box.width}' height='{box.height}' rx='8' fill='{box.fill}' "
            "stroke='#9a3412'/>"
        )
        parts.append(_text(box.x + 12, box.y + 23, box.title, "#431407", "700"))
        parts += [_text(box.x + 12, box.y + 43 + LINE * n, line, "#44403c") for n, line in enumerate(box.lines)]
    for arrow in arrows:
        x1, y1, x2, y2, words, dx, dy = arrow
        parts.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#9a3412' stroke-width='1.6' "
            "marker-end='url(#head)'/>"
        )
        across = x1 if y1 != y2 and x1 == x2 else min(x1, x2)
        parts.append(_text(across + dx, (y1 + y2) // 2 + dy, words, "#7c2d12"))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: int, y: int, words: str, colour: str, weight: str = "400") -> str:
    return f"<text x='{x}' y='{y}' {FONT} font-size='13' font-weight='{weight}' fill='{colour}'>{escape(words)}</text>"


DRAWINGS = {"walk-of-a-kernel.svg": KERNEL, "walk-of-a-test.svg": TEST}


def main() -> int:
    for name, walk in DRAWINGS.items():
        (IMAGES / name).write_text(drawn(*walk))
    return 0


if __name__ == "__main__":
    sys.exit(main())
