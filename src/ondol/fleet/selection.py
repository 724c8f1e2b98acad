"""Which of the collected items a run is for: what an earlier run left unsettled, or one of several parts. Pure."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ondol.errors import UsageError
from ondol.fleet.record import RunRecord
from ondol.fleet.verdict import Verdict


def again(record: RunRecord, ids: Sequence[str]) -> tuple[list[int], list[str]]:
    """What failed, was not run or was flaky in that run: places in `ids`, and those that are not there."""
    wanted = [i.nodeid for i in record.items if i.failed or i.flaky or Verdict(i.verdict).incomplete]
    files = {fatal.file for fatal in record.fatal}  # what is in them nobody knew
    known, asked = set(ids), set(wanted)
    places = [place for place, nodeid in enumerate(ids) if nodeid in asked or nodeid.split("::")[0] in files]
    return places, [nodeid for nodeid in wanted if nodeid not in known]


class Part(NamedTuple):
    """One part of all items."""

    #: Places in the list, in its order.
    places: list[int]
    #: What they weigh: seconds if any duration is known (`timed`), else items.
    weight: float
    total: float
    timed: bool
    #: The same for everybody who divides the same list by the same durations: else an item may be in no part.
    plan: str


def parse_shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard {text!r} is not one of several parts", hint="--shard 2/5, the second of five")
    return int(found[1]), int(found[2])


def part(ids: Sequence[str], seconds: Mapping[str, float], number: int, parts: int) -> Part:
    """Files stay together, so that their fixtures are made once; one that is more than its share is divided."""
    # Plugins shuffle: what is divided must not depend on the order.
    order = sorted(range(len(ids)), key=lambda place: (ids[place], place))
    measured = [seconds[nodeid] for nodeid in ids if nodeid in seconds]
    unknown = sum(measured) / len(measured) if measured else 1.0
    weights = [seconds.get(nodeid, unknown) for nodeid in ids]
    total = sum(weights[place] for place in order)
    bins: list[list[int]] = [[] for _ in range(parts)]
    loads = [0.0] * parts
    pieces = _pieces(ids, order, weights, total / parts)
    heavy = sorted(pieces, key=lambda piece: (-sum(weights[p] for p in piece), -len(piece), ids[piece[0]], piece[0]))
    for piece in heavy:
        # Items that take no time at all still go round.
        least = min(range(parts), key=lambda n: (loads[n], len(bins[n]), n))
        bins[least] += piece
        loads[least] += sum(weights[place] for place in piece)
    plan = hashlib.sha256(repr([sorted(ids[place] for place in one) for one in bins]).encode("utf-8", "replace"))
    return Part(sorted(bins[number - 1]), loads[number - 1], total, bool(measured), plan.hexdigest()[:8])


def _pieces(ids: Sequence[str], order: Sequence[int], weights: Sequence[float], share: float) -> list[list[int]]:
    pieces: list[list[int]] = []
    file, load = None, 0.0
    for place in order:
        own = ids[place].split("::")[0]
        if own != file or load + weights[place] > share * (1 + 1e-9):
            pieces.append([])
            file, load = own, 0.0
        pieces[-1].append(place)
        load += weights[place]
    return pieces
