"""Publishing 2,000 real entries, each durable and atomic by itself, against one archive of the raw tree."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import zstandard

from bench import measure
from bench.raw_tree import raw_tree
from bench.rows import Row, megabytes, timed

_ROUNDS = 3
_PEER = "tar | zstd -3"


def run() -> list[Row]:
    """The peer writes one file and syncs at most once; publishing syncs every pack before it has a name."""
    raw = raw_tree()
    with measure.scratch() as work:
        archive, stores = work / "raw.tar.zst", work / "stores"
        stores.mkdir()
        cases: dict[str, measure.Case] = {
            "ondol store adopt": partial(_adopt, raw, stores),
            _PEER: partial(_archive, raw, archive, threads=0, sync=False),
            f"{_PEER}, fsync": partial(_archive, raw, archive, threads=0, sync=True),
            f"{_PEER} on all cores, fsync": partial(_archive, raw, archive, threads=-1, sync=True),
        }
        samples = measure.interleave(cases, _ROUNDS)
        packed = measure.size_of(stores)[1] // _ROUNDS
        notes = {"ondol store adopt": megabytes(packed), _PEER: f"{megabytes(archive.stat().st_size)} (see above)"}
        return timed(samples, _PEER, notes)


def _adopt(raw: Path, work: Path) -> float:
    store = Path(tempfile.mkdtemp(dir=work))
    env = measure.environment()
    measure.wall(measure.ondol("store", "init", store), env)
    measure.settle(raw)
    return measure.wall(measure.ondol("store", "adopt", raw, "--store", store), env)


def _archive(raw: Path, target: Path, *, threads: int, sync: bool) -> float:
    """`tar c | zstd -3`, with the very zstd library that packs are made with."""
    target.unlink(missing_ok=True)
    measure.settle(raw)
    started = time.perf_counter()
    with subprocess.Popen(["tar", "-c", "-C", str(raw), "."], stdout=subprocess.PIPE) as tar, target.open("wb") as out:
        assert tar.stdout is not None
        zstandard.ZstdCompressor(level=3, threads=threads).copy_stream(tar.stdout, out, read_size=1 << 20)
        if sync:
            out.flush()
            os.fsync(out.fileno())
    if tar.returncode:
        raise RuntimeError(f"tar: status {tar.returncode}")
    return time.perf_counter() - started
