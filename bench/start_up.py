"""What `ondol run` adds to a command that does nothing."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from bench import measure, synthetic
from bench.rows import Row, timed

_ROUNDS = 25
_PYTHON = "python3 -c pass"


def run() -> list[Row]:
    """Against starting Python at all, and against the bare command. The goal: at most 3 times `python3 -c pass`."""
    with measure.scratch() as work:
        empty, some = work / "empty", work / "some"
        for store in (empty, some):
            synthetic.make_store(store)
        synthetic.add_entries(some, 0, 20)
        env = measure.environment(TMPDIR=str(work))
        commands: dict[str, list[str]] = {
            "true": ["true"],
            _PYTHON: [sys.executable, "-c", "pass"],
            "ondol run -q --tools none -- true": _job("--tools", "none"),
            "ondol run -q -- true (default store)": _job(),
            "… --store with nothing in it": _job("--store", empty),
            "… --store with 20 small entries, filled": _job("--store", some),
        }
        cases = {name: partial(measure.wall, command, env, work) for name, command in commands.items()}
        measure.interleave(cases, 2)  # writes bytecode and the default store
        return timed(measure.interleave(cases, _ROUNDS), _PYTHON)


def _job(*options: str | Path) -> list[str]:
    return measure.ondol("run", "-q", *options, "--", "true")
