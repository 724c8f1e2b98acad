"""One real Triton program: compiled, warm in place, warm cache moved by hand, warm cache moved by Ondol."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench import measure
from bench.rows import Row, timed

_ROUNDS = 5
_COLD = "cold"
_PROGRAM = [sys.executable, "-m", "bench.kernels", "program"]
_NOTE = "{hits} hits, {compiled} compiled"


def run() -> list[Row]:
    """Each case is a new process; Triton's own listener says what was a hit, and a wrong count fails the bench."""
    with measure.scratch() as work:
        kept, store = work / "kept", work / "store"
        _run(_PROGRAM, kept)
        measure.wall(measure.ondol("store", "init", store), measure.environment())
        measure.wall(measure.ondol("store", "adopt", kept, "--store", store), measure.environment())
        seen: dict[str, str] = {}
        cases: dict[str, measure.Case] = {
            _COLD: partial(_cold, work, seen),
            "warm in place": partial(_case, "warm in place", _PROGRAM, kept, "hits", seen),
            "copied elsewhere, the original gone": partial(_copied, work, kept, seen),
            "through ondol run, at another path": partial(_through_ondol, work, store, seen),
        }
        return timed(measure.interleave(cases, _ROUNDS), _COLD, seen)


def _run(command: list[str], cache: Path | None) -> tuple[float, dict[str, int]]:
    extra = {} if cache is None else {"TRITON_CACHE_DIR": str(cache)}
    started = time.perf_counter()
    done = subprocess.run(command, env=measure.environment(**extra), capture_output=True, check=True)
    return time.perf_counter() - started, json.loads(done.stdout)


def _case(name: str, command: list[str], cache: Path | None, expected: str, seen: dict[str, str]) -> float:
    """`expected`: `hits` if nothing may be compiled, `compiled` if nothing can be a hit."""
    took, counts = _run(command, cache)
    if counts[expected] != sum(counts.values()):
        raise RuntimeError(f"{name}: expected only {expected}, got {counts}")
    seen[name] = _NOTE.format(**counts)
    return took


def _cold(work: Path, seen: dict[str, str]) -> float:
    cache = work / "cold"
    shutil.rmtree(cache, ignore_errors=True)
    return _case(_COLD, _PROGRAM, cache, "compiled", seen)


def _copied(work: Path, kept: Path, seen: dict[str, str]) -> float:
    """Group files name their children by absolute path; with the original gone, a copy is worth nothing."""
    hidden, copy = work / "hidden", work / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(kept, copy)
    kept.rename(hidden)
    try:
        return _case("copied elsewhere, the original gone", _PROGRAM, copy, "compiled", seen)
    finally:
        hidden.rename(kept)


def _through_ondol(work: Path, store: Path, seen: dict[str, str]) -> float:
    command = measure.ondol("run", "-q", "--store", store, "--room-dir", work, "--", *_PROGRAM)
    return _case("through ondol run, at another path", command, None, "hits", seen)
