"""A run as one JSON document, for programs."""

from __future__ import annotations

import dataclasses
import json

from ondol.fleet.journal import as_line
from ondol.fleet.record import RunRecord


def render(record: RunRecord) -> str:
    document = {
        "format": 1,
        "complete": record.complete,
        "status": record.status,
        "counts": record.counts(),
        "run": as_line(record.run),
        "quarantined": [q._asdict() for q in record.quarantines],
        "nodes": [{"event": as_line(n)["e"], **n._asdict()} for n in record.nodes],
        "rooms": [{"node": r.node, "status": r.status, **r.room} for r in record.rooms],
        "items": [dataclasses.asdict(item) for item in record.items],
    }
    return json.dumps(document, indent=1, default=str)
