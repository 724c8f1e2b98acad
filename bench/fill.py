"""A verified fill of 2,000 real entries, against copying the raw tree without looking at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import measure
from bench.raw_tree import ENTRIES, raw_tree
from bench.rows import Row, megabytes, timed

_ROUNDS = 3
_COLD_ROUNDS = 2
_FILL = "ondol run: its verified fill"
_COPY = "cp -a"
_COLD = ", nothing cached"


def run() -> list[Row]:
    """The goal: faster than `cp -a` on 2 cores, though every byte is checked and unpacked."""
    raw = raw_tree()
    with measure.scratch() as work:
        store = work / "store"
        env = measure.environment()
        measure.wall(measure.ondol("store", "init", store), env)
        measure.wall(measure.ondol("store", "adopt", raw, "--store", store), env)
        archive = work / "raw.tar"
        measure.wall(["tar", "-cf", archive, "-C", raw, "."])
        inputs = {_FILL: store, _COPY: raw, "tar x": archive}
        acts = {_FILL: partial(_fill, store), _COPY: partial(_copy, raw), "tar x": partial(_extract, archive)}
        warm = {name: partial(_case, act, [inputs[name]]) for name, act in acts.items()}
        rows = [*_sizes(raw, store), *timed(measure.interleave(warm, _ROUNDS), _COPY)]
        if measure.can_drop_caches():
            cold = {f"{name}{_COLD}": partial(_case, act, []) for name, act in acts.items()}
            rows += timed(measure.interleave(cold, _COLD_ROUNDS), _COPY + _COLD)
        return rows


def _case(act: Callable[[Path], float], inputs: list[Path]) -> float:
    measure.settle(*inputs)
    with measure.scratch() as target:
        return act(target)


def _sizes(raw: Path, store: Path) -> list[Row]:
    count, size = measure.size_of(raw)
    packs, packed = measure.size_of(store / "lanes")
    return [
        Row("raw tree", megabytes(size), note=f"{count:,} files"),
        Row("packs", megabytes(packed), ratio=f"{packed / size:.2f} x", note=f"{packs:,} files"),
    ]


def _fill(store: Path, target: Path) -> float:
    """What the job itself counts: opening the store, listing, forking, fetching, checking, unpacking."""
    options = ("--store", store, "--room-dir", target, "--frozen", "--json", target / "report.json")
    measure.wall(measure.ondol("run", "-q", *options, "--", "true"), measure.environment())
    report = json.loads((target / "report.json").read_text())
    if report["tools"]["triton"]["filled"] != ENTRIES or report["warnings"]:
        raise RuntimeError(f"the fill was not whole: {report}")
    return float(report["seconds"]["fill"])


def _copy(raw: Path, target: Path) -> float:
    return measure.wall(["cp", "-a", raw, target])


def _extract(archive: Path, target: Path) -> float:
    return measure.wall(["tar", "-xf", archive, "-C", target])
