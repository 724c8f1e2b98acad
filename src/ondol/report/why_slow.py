"""Why a run took as long as it did: the biggest reasons, in words. Pure.

Each reason has the seconds of the run that it explains. What kept one device of four from work for a minute made the
run about a quarter of a minute longer. Reasons may overlap: a test that hangs at the end is a deadline and a long tail.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ondol import units
from ondol.fleet.messages import NodeUp
from ondol.fleet.record import RunRecord
from ondol.fleet.verdict import Verdict
from ondol.report.timeline import Bar, DeviceLane, Timeline

#: A reason that explains less than this part of the run is none.
LEAST = 0.05
_LATE = Verdict.TIMEOUT.value


class Reason(NamedTuple):
    kind: str
    seconds: float
    text: str
    #: The item that it is about, if it is about one.
    item: int | None = None


def reasons(found: Timeline, record: RunRecord, most: int = 3) -> list[Reason]:
    """The biggest first; none for a run in which nothing was run."""
    bars = sorted(found.bars(), key=lambda bar: bar.begin)
    if not bars or not found.seconds:
        return []
    lanes = [lane for lane in found.lanes if lane.device] or found.lanes
    told = [*_beginning(found, record, bars), *_tail(record, lanes), *_attempts(bars, record, len(lanes))]
    told += [*_workers(lanes), *_set_aside(found, len(lanes)), *_compiling(record, len(lanes))]
    left = found.seconds - max(bar.end for bar in bars)
    told.append(Reason("end", left, f"{units.seconds(left)} passed after the last test: ends of fixtures and workers."))
    large = [one for one in told if one.seconds >= LEAST * found.seconds]
    return sorted(large, key=lambda one: -one.seconds)[:most] or [_work(found, bars, len(lanes))]


def _beginning(found: Timeline, record: RunRecord, bars: list[Bar]) -> Iterator[Reason]:
    first = bars[0].begin
    waited = max((node.waited for node in record.nodes if isinstance(node, NodeUp)), default=0.0)
    collected = min(found.collected, first)
    # Nodes are waited for beside the collection, too.
    parts = ((collected, "of them collecting"), (min(waited, first - collected), "of them waiting for a node"))
    large = [f", {units.seconds(spent)} {what}" for spent, what in parts if spent > 0.1 * first]
    yield Reason("start", first, f"{units.seconds(first)} passed before the first test began{''.join(large)}.")


def _tail(record: RunRecord, lanes: list[DeviceLane]) -> Iterator[Reason]:
    """The time at the end in which one place worked and all others had nothing left to do."""
    busy = sorted((lane for lane in lanes if lane.bars), key=lambda lane: lane.bars[-1].end)
    if len(lanes) < 2 or not busy:
        return
    others = busy[-2].bars[-1].end if len(busy) > 1 else busy[-1].bars[0].begin
    end = busy[-1].bars[-1].end
    alone = [bar for bar in busy[-1].bars if bar.end > others]
    if not alone:
        return
    longest = max(alone, key=lambda bar: bar.end - max(bar.begin, others))
    name, rest = record.items[longest.item].nodeid, len(alone) - 1
    more = f" and {rest} more" if rest else ""
    text = f"For {units.seconds(end - others)} at the end only {busy[-1].slot} had work: {name}{more}."
    yield Reason("tail", end - others, text, longest.item)


def _attempts(bars: list[Bar], record: RunRecord, lanes: int) -> Iterator[Reason]:
    """What attempts cost that ran into a deadline, had to be made once more, or prepared more than they tested."""
    late = [bar for bar in bars if bar.attempt.outcome == _LATE]
    again = [bar for bar in bars if bar.attempt.number > 1 and bar.attempt.outcome != _LATE]
    for kind, some, text in (("deadline", late, "ran into a deadline"), ("again", again, "repeated an earlier one")):
        if some:
            longest, spent = max(some, key=_seconds), sum(map(_seconds, some))
            name = record.items[longest.item].nodeid + (f" and {len(some) - 1} more" if some[1:] else "")
            told = f"{units.plural(len(some), 'attempt')} {text} and took {units.seconds(spent)}: {name}."
            yield Reason(kind, spent / lanes, told, longest.item)
    whole = [bar for bar in bars if bar.attempt.outcome != _LATE]
    around = [(sum(p.end - p.begin for p in bar.phases if p.name != "call"), bar) for bar in whole]
    if around:
        spent = sum(seconds for seconds, _ in around)
        most, bar = max(around, key=lambda pair: pair[0])
        text = f"Set-up and teardown of tests took {units.seconds(spent)}, {units.seconds(most)} of them in "
        yield Reason("fixtures", spent / lanes, f"{text}{record.items[bar.item].nodeid}.", bar.item)


def _workers(lanes: list[DeviceLane]) -> Iterator[Reason]:
    """Workers that were started again: the first start is part of the beginning."""
    later = [(before, life) for lane in lanes for before, life in pairwise(lane.generations)]
    spent = sum(max(0.0, life.up - max(life.asked, before.end)) for before, life in later)
    kills = sum(before.abnormal for before, _ in later)
    if later:
        text = f"{units.plural(len(later), 'worker')} had to be replaced, {kills} of them after a crash or a kill: "
        yield Reason("workers", spent / len(lanes), f"{text}their successors took {units.seconds(spent)} to start.")


def _set_aside(found: Timeline, lanes: int) -> Iterator[Reason]:
    for mark in found.marks:
        if mark.kind in {"quarantined", "node lost"}:
            left = found.seconds - mark.at
            what = (
                f"Device {mark.where} was quarantined" if mark.kind == "quarantined" else f"Node {mark.where} was lost"
            )
            text = f"{what} {units.seconds(mark.at)} into the run, and the others did its work: {mark.text}."
            yield Reason("lost", left / max(1, lanes), text)


def _compiling(record: RunRecord, lanes: int) -> Iterator[Reason]:
    tools = [tool for room in record.rooms for tool in room.room.get("tools", {}).values()]
    spent = sum(float(tool.get("seconds_new") or 0.0) for tool in tools)
    new = {tool["name"]: tool["new"] for tool in tools if tool.get("new")}
    if spent:
        what = ", ".join(f"{units.entries(count)} of {name}" for name, count in new.items())
        yield Reason(
            "compiling", spent / lanes, f"{units.seconds(spent)} were spent compiling what was in no cache: {what}."
        )


def _work(found: Timeline, bars: list[Bar], lanes: int) -> Reason:
    spent = sum(map(_seconds, bars))
    part = round(100 * spent / (found.seconds * lanes))
    return Reason(
        "work", spent / lanes, f"Nothing stands out: for {part}% of the time the devices were busy with tests."
    )


def _seconds(bar: Bar) -> float:
    return bar.end - bar.begin
