"""One function of torch.compile on the processor: cold, warm in place, with a TMPDIR of its own, through Ondol."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

from bench import measure
from bench.rows import Row, timed

_ROUNDS = 3
_COLD = "cold"
_PROGRAM = [str(measure.ROOT / ".build/tools/bin/python"), str(measure.ROOT / "tests/programs/compiled.py")]
_NOTE = "{hits} hits, {compiled} compiled, {built} built in C++"


def run() -> list[Row]:
    """Each case is a new process; torch's own counters say what was a hit, and a wrong count fails the bench."""
    with measure.scratch() as work:
        store = work / "store"
        measure.wall(measure.ondol("store", "init", store), measure.environment())
        _run(_through(work, store), {})
        kept, tmp = work / "kept", work / "tmp"
        tmp.mkdir()
        _run(_PROGRAM, {"TORCHINDUCTOR_CACHE_DIR": str(kept), "TMPDIR": str(tmp)})
        seen: dict[str, str] = {}
        cases: dict[str, measure.Case] = {
            _COLD: partial(_fresh, _COLD, work, None, seen),
            "warm in place": partial(_case, "warm in place", kept, tmp, seen),
            "warm, in a TMPDIR of its own": partial(_fresh, "warm, in a TMPDIR of its own", work, kept, seen),
            "through ondol run, at another path": partial(_through_ondol, work, store, seen),
        }
        return timed(measure.interleave(cases, _ROUNDS), _COLD, seen)


def _run(command: list[str], env: dict[str, str]) -> tuple[float, dict[str, int]]:
    started = time.perf_counter()
    done = subprocess.run(command, env=measure.environment(**env), capture_output=True, check=True)
    return time.perf_counter() - started, json.loads(done.stdout)


def _case(name: str, cache: Path, tmp: Path, seen: dict[str, str]) -> float:
    took, counts = _run(_PROGRAM, {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TMPDIR": str(tmp)})
    return _told(name, took, counts, seen)


def _fresh(name: str, work: Path, cache: Path | None, seen: dict[str, str]) -> float:
    """Precompiled headers lie below TMPDIR, which most CI systems and schedulers make anew for every job."""
    fresh = work / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    return _case(name, cache or fresh / "cache", fresh, seen)


def _through(work: Path, store: Path) -> list[str]:
    return measure.ondol("run", "-q", "--store", store, "--room-dir", work, "--", *_PROGRAM)


def _through_ondol(work: Path, store: Path, seen: dict[str, str]) -> float:
    return _told("through ondol run, at another path", *_run(_through(work, store), {}), seen)


def _told(name: str, took: float, counts: dict[str, int], seen: dict[str, str]) -> float:
    if counts["hits"] != (0 if name == _COLD else 1):
        raise RuntimeError(f"{name}: got {counts}")
    seen[name] = _NOTE.format(**counts)
    return took
