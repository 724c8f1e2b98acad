"""What a bench reports: rows of a table, made from samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

HEADER = ("what", "median", "best", "ratio", "note")


class Row(NamedTuple):
    """One line of a table; every cell is text, so that seconds, bytes and counts can stand in one table."""

    what: str
    median: str
    best: str = ""
    #: How many times the peer's median, for example `1.8 x`; `1` is the peer itself.
    ratio: str = ""
    note: str = ""


def timed(samples: Mapping[str, Sequence[float]], peer: str, notes: Mapping[str, str] | None = None) -> list[Row]:
    """One row per case, slowest claims and all: medians, minima, and the ratio of the medians to the peer's."""
    base = median(samples[peer])
    return [
        Row(
            name,
            seconds(median(values)),
            seconds(min(values)),
            "1" if name == peer else f"{median(values) / base:.2f} x",
            (notes or {}).get(name, ""),
        )
        for name, values in samples.items()
    ]


def seconds(value: float) -> str:
    """`12.3 ms` or `4.56 s`: three digits are more than a shared machine can promise."""
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table that reads well in a terminal and in a browser."""
    cells = [HEADER, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = ["| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells]
    lines = [f"{line} |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
