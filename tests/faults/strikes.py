"""Strikes an operation at every call it makes, in every way, and collects what that broke."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from faults import crash_points
from faults.crash_points import Ended, Point
from faults.operations import Operation, fresh

#: No operation here makes more calls than this; a sweep that gets so far is not counting.
_ENDLESS = 2000


def kill_points() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "before", crash_points.CHANGING
    yield "after", crash_points.CHANGING
    yield "torn", ("write",)


def kill_violations(operation: Operation, base: Path) -> list[str]:
    """Kill it at every point; then look, do it again undisturbed, and look again."""
    again = fresh(operation, base)
    found: list[str] = []
    for how, calls in kill_points():
        for number in range(1, _ENDLESS):
            place, point = again(), Point(how, number, 0, calls)
            ended = crash_points.run(partial(operation.act, place), point, operation.refusals)
            found += [f"{point}, {ended.struck}: {text}" for text in _aftermath(operation, place, ended)]
            if not ended.struck:
                break
    return found


def error_violations(operation: Operation, base: Path, how: str, error: int, calls: tuple[str, ...]) -> list[str]:
    """Let each of its calls fail with this error; then the same."""
    again = fresh(operation, base / f"{how}-{error}")
    found: list[str] = []
    for number in range(1, _ENDLESS):
        place, point = again(), Point(how, number, error, calls)
        ended = crash_points.run(partial(operation.act, place), point, operation.refusals)
        found += [f"{point}, {ended.struck}: {text}" for text in _aftermath(operation, place, ended)]
        if not ended.struck:
            break
    return found


def _aftermath(operation: Operation, place: Path, ended: Ended) -> list[str]:
    found = [f"not in its contract: {ended.value}"] if ended.how == crash_points.CRASHED else []
    found += operation.violations(place, False)
    try:
        operation.act(place)
    except Exception as error:
        found.append(f"it cannot be done again: {type(error).__name__}: {error}")
    return found + operation.violations(place, True)
