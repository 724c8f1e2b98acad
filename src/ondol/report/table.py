"""Columns of text for people: aligned, plain, the same with and without a terminal."""

from collections.abc import Sequence

from ondol.foreign_text import printable


def lines(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """A table with its header; columns whose numbers are in `right` are aligned to the right."""
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    aligned = [(str.rjust if column in right else str.ljust, width) for column, width in enumerate(widths)]
    return [
        "  ".join(to(cell, width) for cell, (to, width) in zip(row, aligned, strict=True)).rstrip() for row in cells
    ]
