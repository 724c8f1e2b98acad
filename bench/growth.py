"""What a growing store costs: 100 to 20,000 small made-up entries, of which a job fills a few."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median

from bench import measure, synthetic
from bench.rows import Row, seconds
from ondol.config import merge
from ondol.jobs.open_store import open_store

_COUNTS = (100, 1_000, 5_000, 20_000)
_ROUNDS = 5


def run() -> list[Row]:
    """One row per size and act; the ratio is to the smallest store."""
    rows: list[Row] = []
    base: dict[str, float] = {}
    with measure.scratch() as work:
        store = work / "store"
        synthetic.make_store(store)
        before = 0
        for count in _COUNTS:
            synthetic.add_entries(store, before, count)
            before = count
            for name, values in measure.interleave(_cases(work, store), _ROUNDS).items():
                middle = median(values)
                ratio = middle / base.setdefault(name, middle)
                rows.append(Row(f"{count:,}: {name}", seconds(middle), seconds(min(values)), f"{ratio:.2f} x"))
    return rows


def _cases(work: Path, store: Path) -> dict[str, measure.Case]:
    env = measure.environment(TMPDIR=str(work))
    where = ("--store", store)
    return {
        "open and list": partial(_open_and_list, store),
        "ondol run --fill-max 10kB -- true": partial(
            measure.wall, measure.ondol("run", "-q", *where, "--fill-max", "10kB", "--", "true"), env, work
        ),
        "ondol store gc --max-size 0 --dry-run": partial(
            measure.wall, measure.ondol("store", "gc", *where, "--max-size", "0", "--dry-run"), env, work
        ),
        "ondol store stats": partial(measure.wall, measure.ondol("store", "stats", *where), env, work),
    }


def _open_and_list(path: Path) -> float:
    settings = merge({"store": str(path)}, {})
    started = time.perf_counter()
    store = open_store(settings)
    store.index("triton", ["main"])
    took = time.perf_counter() - started
    store.close()
    return took
