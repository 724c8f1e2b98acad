"""Finds tools by name: the rows of the table, and those that other packages bring (entry point `ondol.tools`)."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ondol.errors import UsageError, did_you_mean
from ondol.tools import table
from ondol.tools.api import Tool
from ondol.tools.table import Row

ENTRY_POINTS = "ondol.tools"
AUTO = "auto"
#: Tools from other packages, by name, once they were asked for.
_brought: dict[str, Tool] = {}


def unasked() -> list[Row]:
    """What a job gets that names no tools."""
    return [row for row in table.ROWS if row.unasked]


def switched_on(value: Callable[[str], object]) -> list[Row]:
    """The tools whose own setting has a value: naming a place is asking for it."""
    return [row for row in table.ROWS if row.setting and value(row.setting)]


def choose(names: Sequence[str]) -> list[Row]:
    """The tools of these names, in order; `auto` stands for all that need not be asked for, `-NAME` leaves one out.

    Raises `UsageError` for one that neither we know nor an installed package brings.
    """
    rows: dict[str, Row] = {}
    left_out = [_find(name[1:]).name for name in names if name.startswith("-")]
    for name in names:
        for row in unasked() if name == AUTO else [] if name.startswith("-") else [_find(name)]:
            rows[row.name] = row
    return [row for row in rows.values() if row.name not in left_out]


def load(row: Row) -> Tool:
    """The code that understands this tool's files. Raises `UsageError` for one whose files are not for us."""
    if row.name in _brought:
        return _brought[row.name]
    if not row.travels:
        raise UsageError(f"the cache of {row.name} is never copied", because=row.note)
    tools: tuple[Tool, ...] = import_module(f"ondol.tools.{row.module}").TOOLS
    return next(tool for tool in tools if tool.row.name == row.name)


def everything() -> list[Row]:
    """All rows, also those of other packages; a package that cannot be loaded is left out."""
    brought = []
    for name in _entry_points():
        try:
            brought.append(_find(name))
        except UsageError:
            continue  # `--tools NAME` says why
    return [*table.ROWS, *(row for row in brought if row.name not in table.BY_NAME)]


def _find(name: str) -> Row:
    if name in table.BY_NAME:
        return table.BY_NAME[name]
    if name not in _brought:
        points = _entry_points()
        if name not in points:
            known = [*table.BY_NAME, *points]
            every = f"one or more of: {', '.join(known)}; or auto"
            raise UsageError(f"there is no tool {name!r}", hint=did_you_mean(name, known, every))
        _brought[name] = _load_foreign(name, points[name])
    return _brought[name].row


def _load_foreign(name: str, point: Any) -> Tool:
    try:
        tool: Tool = point.load()
        row = tool.row
    except Exception as error:
        raise UsageError(
            f"the tool {name!r} of {point.value} cannot be loaded", because=f"{type(error).__name__}: {error}"
        )
    is_tool = hasattr(tool, "versioned") and hasattr(tool, "settle")
    if not is_tool or not isinstance(row, Row) or row.name != name:
        raise UsageError(
            f"the tool {name!r} of {point.value} cannot be used",
            because="its `row` is not a Row of that name" if is_tool else "it is no ondol.tools.api.Tool",
            hint="docs/how-to/add-a-tool.md shows one",
        )
    return tool


def _entry_points() -> dict[str, Any]:
    # Only for a name that is not ours: looking through all installed packages costs more than starting Python.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
