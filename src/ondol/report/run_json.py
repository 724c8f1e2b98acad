"""A run as one JSON document, for programs."""

import dataclasses
import json
from typing import Any

from ondol.fleet.journal import as_line
from ondol.fleet.messages import NodeStory, NodeUp
from ondol.fleet.record import ItemRecord, RunRecord


def render(record: RunRecord) -> str:
    document = {
        "format": "ondol-report/1",
        "complete": record.complete,
        "status": record.status,
        "counts": record.counts(),
        "run": as_line(record.run),
        "expired": record.expired,
        "quarantined": [q._asdict() for q in record.quarantines],
        "nodes": [{"event": as_line(n)["e"], **_node(n)} for n in record.nodes],
        "rooms": [{"node": r.node, "status": r.status, **r.room} for r in record.rooms],
        "items": [_item(item) for item in record.items],
    }
    return json.dumps(document, indent=1, default=str)


def _item(item: ItemRecord) -> dict[str, Any]:
    told = dataclasses.asdict(item)
    for attempt in told["attempts"]:
        del attempt["reports"], attempt["warnings"]  # pytest's, while the run goes on
    return told


def _node(event: NodeStory) -> dict[str, Any]:
    if not isinstance(event, NodeUp):
        return event._asdict()
    told = event._replace(devices=[device["name"] if isinstance(device, dict) else device for device in event.devices])
    return told._asdict()
