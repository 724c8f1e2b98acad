"""Columns of text for people: aligned, plain, the same with and without a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ondol import words


def render(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table with its header; columns whose numbers are in `right` are aligned to the right."""
    lines = [[words.printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
