"""Strikes an operation at every call it makes, in every way, and collects what that broke."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faults import crash_points
from faults.crash_points import Ended, Point
from faults.operations import Operation, fresh
from faults.states import same_names, state

#: No operation here makes more calls than this; a sweep that gets so far is not counting.
_ENDLESS = 2000


def kill_points() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "before", crash_points.CHANGING
    yield "after", crash_points.CHANGING
    yield "torn", ("write",)


def kill_violations(operation: Operation, base: Path) -> list[str]:
    """Kill it at every point; then look, do it again undisturbed, and look again."""
    sweep = Sweep(operation, base)
    return [text for how, calls in kill_points() for text in sweep.violations(Point(how, 0, 0, calls))]


def error_violations(operation: Operation, base: Path, how: str, error: int, calls: tuple[str, ...]) -> list[str]:
    """Let each of its calls fail with this error; then the same."""
    return Sweep(operation, base / f"{how}-{error}").violations(Point(how, 0, error, calls))


class Sweep:
    """Every call of an operation is struck. What comes after depends on the state that is left: each is looked at once."""

    def __init__(self, operation: Operation, base: Path) -> None:
        self.operation = operation
        self.again = fresh(operation, base)
        self.known: dict[bytes, list[str]] = {}

    def violations(self, kind: Point) -> list[str]:
        found: list[str] = []
        for number in range(1, _ENDLESS):
            place, point = self.again(), kind._replace(number=number)
            ended = self.strike(place, point)
            found += [f"{point}, {ended.struck}: {text}" for text in self.aftermath(place, ended)]
            if not ended.struck:
                return found
        raise AssertionError("it never ends")

    def strike(self, place: Path, point: Point) -> Ended:
        def act() -> Any:
            with same_names():
                return self.operation.act(place)

        # Who is killed must be somebody else; and a room is left behind only when its owner is dead.
        run = crash_points.run_here if point.error and self.operation.lives_on else crash_points.run
        return run(act, point, self.operation.refusals)

    def aftermath(self, place: Path, ended: Ended) -> list[str]:
        found = [f"not in its contract: {ended.value}"] if ended.how == crash_points.CRASHED else []
        left = state(str(place))
        if left not in self.known:
            self.known[left] = self.violations_after(place)
        return found + self.known[left]

    def violations_after(self, place: Path) -> list[str]:
        found = self.operation.violations(place, False)
        try:
            self.operation.act(place)
        except Exception as error:
            found.append(f"it cannot be done again: {type(error).__name__}: {error}")
        return found + self.operation.violations(place, True)
