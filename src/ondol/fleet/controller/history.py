"""How long each item took in earlier runs, so that the longest can go first. Losing it costs order, never results."""

import json
from contextlib import suppress
from pathlib import Path

from ondol.host import files

#: How much the newest run counts.
WEIGHT = 0.5
LIMIT = 100_000


def load(path: Path | None) -> dict[str, float]:
    if path is None:
        return {}
    try:
        data = json.loads(path.read_text())
        return {str(k): float(v) for k, v in data["seconds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def merge(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    merged = dict(old)
    for name, seconds in new.items():
        merged[name] = seconds if name not in old else round(WEIGHT * seconds + (1 - WEIGHT) * old[name], 4)
    # The newest are at the end of a dictionary: items that no longer exist fall off the front.
    fresh = {name: merged.pop(name) for name in new}
    merged.update(fresh)
    return dict(list(merged.items())[-LIMIT:])


def save(path: Path | None, seconds: dict[str, float]) -> None:
    """Whole or not at all; a full or read-only disk is not the run's problem."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(str(path), json.dumps({"format": 1, "seconds": seconds}).encode(), 0o644)
