"""`--perfetto FILE`: a run as a Chrome trace, for ui.perfetto.dev and chrome://tracing.

A process is a node, a thread is a lane; inside a worker's life lie its attempts, inside an attempt its phases. Arrows
join the attempts of one item.
"""

import json
from typing import Any

from ondol.fleet.record import RunRecord
from ondol.report.timeline import DeviceLane, Timeline


def render(record: RunRecord) -> str:
    found = Timeline(record)
    nodes = {name: number for number, name in enumerate(dict.fromkeys(lane.node for lane in found.lanes) or [""], 1)}
    events: list[dict[str, Any]] = []
    for name, pid in nodes.items():
        events.append(_named("process_name", pid, 0, f"node {name}" if name else "this machine"))
        events.append(_named("thread_name", pid, 0, "run"))
    events.append(_span("collecting", "run", 0.0, found.collected, 1, 0))
    for mark in found.marks:
        told = {"name": f"{mark.kind} {mark.where}".strip(), "cat": "run", "ph": "i", "ts": _micro(mark.at), "s": "g"}
        events.append({**told, "pid": 1, "tid": 0, "args": {"why": mark.text}})
    places: dict[tuple[int, int], dict[str, int]] = {}
    for tid, lane in enumerate(found.lanes, 1):
        pid = nodes[lane.node]
        events += [_named("thread_name", pid, tid, lane.slot), *_lane(record, lane, pid, tid)]
        for bar in lane.bars:
            places[bar.item, bar.attempt.number] = {"ts": _micro(bar.begin), "pid": pid, "tid": tid}
    for (item, turn), place in places.items():
        if before := places.get((item, turn - 1)):
            arrow = {"name": "again", "cat": "retry", "id": f"{item}.{turn}"}
            events += [{**arrow, "ph": "s", **before}, {**arrow, "ph": "f", "bp": "e", **place}]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":"))


def _lane(record: RunRecord, lane: DeviceLane, pid: int, tid: int) -> list[dict[str, Any]]:
    events, before = [], 0.0
    for life in lane.generations:
        begin = max(before, life.asked)
        events.append(_span("worker start", "worker", begin, life.up, pid, tid, worker=life.worker))
        told = {"why": life.why, "items": life.ran, "abnormal": life.abnormal}
        events.append(_span(life.worker, "worker", life.up, life.end, pid, tid, **told))
        before = life.end
    for item, begin, end in lane.prepared:
        events.append(_span(f"prepare {record.items[item].nodeid}", "prepare", begin, end, pid, tid))
    for bar in lane.bars:
        attempt = bar.attempt
        told = {"outcome": attempt.outcome, "attempt": attempt.number, "reason": attempt.reason, "warm": attempt.warm}
        events.append(_span(record.items[bar.item].nodeid, "attempt", bar.begin, bar.end, pid, tid, **told))
        events += [_span(phase.name, "phase", phase.begin, phase.end, pid, tid) for phase in bar.phases]
    return events


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)


def _span(name: str, kind: str, begin: float, end: float, pid: int, tid: int, **told: Any) -> dict[str, Any]:
    # Both ends are rounded, never the length: what lies inside something must not stick out by a microsecond.
    first, last = _micro(begin), _micro(end)
    span = {"name": name, "cat": kind, "ph": "X", "ts": first, "dur": max(0, last - first), "pid": pid, "tid": tid}
    return {**span, "args": told} if told else span


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}
