"""A run as one JSON document, for programs."""

from __future__ import annotations

import dataclasses
import json

from ondol.report.run_record import RunRecord


def render(record: RunRecord) -> str:
    document = {
        "format": 1,
        "complete": record.complete,
        "status": record.status,
        "counts": record.counts(),
        "run": record.run,
        "quarantined": [{"device": q["device"], "why": q["why"], "items": q["items"]} for q in record.quarantines],
        "nodes": [{"event": n["e"], **{k: v for k, v in n.items() if k != "e"}} for n in record.nodes],
        "rooms": record.rooms,
        "items": [dataclasses.asdict(item) for item in record.items],
    }
    return json.dumps(document, indent=1, default=str)
