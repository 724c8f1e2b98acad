"""What happens beside a command: when it starts, what is left to do when it ends, and what all of it costs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench import measure, synthetic
from bench.raw_tree import key_of
from bench.rows import Row, seconds
from ondol.config import merge
from ondol.jobs.job import Job
from ondol.jobs.open_store import open_store
from ondol.store.entry import Address

_STORED, _USED, _BESIDE = 20_000, 20, 2_000
_ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
#: A Python that has torch: the one of the tests of real tools, or our own.
_TOOLS = measure.ROOT / ".build" / "tools" / "bin" / "python"
_TORCH = str(_TOOLS if _TOOLS.exists() else sys.executable)
_NOW = [sys.executable, "-c", "import time; print(time.time())"]
_IMPORT = ["env", "-u", "PYTHONPATH", _TORCH, "-c", "import torch, time; print(time.time(), flush=True)"]


class Sample:
    """One command through `ondol run`: seconds until it said its time, from then to the end, and of processors."""

    def __init__(self, work: Path, command: list[str], *options: str | Path, plain: bool = False) -> None:
        env, report = measure.environment(TMPDIR=str(work)), work / "report.json"
        words = command if plain else measure.ondol("run", "-q", "--json", report, *options, "--", *command)
        before, cpu = time.time(), _cpu()
        done = subprocess.run(words, env=env, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        said = float(done.stdout.split()[-1])
        self.start, self.end, self.cpu = said - before, time.time() - said, _cpu() - cpu
        told = {} if plain else json.loads(report.read_text())["tools"]
        self.filled = int(told.get("triton", {}).get("filled", 0))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run() -> list[Row]:
    """Three parts; each row's ratio is to the first of its part."""
    with measure.scratch() as work:
        return [*_starting(work), *_importing(work), *_compiling(work)]


def _starting(work: Path) -> list[Row]:
    """20 used of 20,000 stored. The goal: 0.3 s over no store at all."""
    empty, big = work / "empty", work / "big"
    for store in (empty, big):
        synthetic.make_store(store)
    synthetic.add_entries(big, 0, _STORED)
    _note(work, big)
    samples: dict[str, list[Sample]] = {"no tools": [], "an empty store": [], f"{_USED} used of {_STORED:,} stored": []}
    options: list[tuple[str | Path, ...]] = [("--tools", "none"), ("--store", empty), ("--store", big)]
    for _ in range(_ROUNDS):
        for name, how in zip(samples, options, strict=True):
            samples[name].append(Sample(work, _NOW, *how))
    base = median(one.start for one in samples["no tools"])
    rows = []
    for name, some in samples.items():
        middle = median(one.start for one in some)
        note = f"+{seconds(max(middle - base, 0.0))}; processors {seconds(median(one.cpu for one in some))}"
        rows.append(Row(f"command starts: {name}", seconds(middle), seconds(min(s.start for s in some)), "", note))
    return rows


def _note(work: Path, store: Path) -> None:
    """As if this very job had used some of it yesterday."""
    settings = merge({"store": str(store)}, {})
    here = os.getcwd()
    os.chdir(work)
    try:
        job = Job(_NOW, settings, measure.environment(), lambda _what, _done, _total: None)
        used = range(0, _STORED, _STORED // _USED)
        open_store(settings).note_use([Address("main", "triton", "any", key_of(n)) for n in used], job.name)
    finally:
        os.chdir(here)


def _importing(work: Path) -> list[Row]:
    """2,000 entries beside `import torch`: nothing left to wait for at its end."""
    store = work / "two"
    synthetic.make_store(store)
    synthetic.add_entries(store, 0, _BESIDE)
    cases = {"plain": None, "ondol run, no tools": ("--tools", "none"), f"{_BESIDE:,} stored": ("--store", store)}
    samples: dict[str, list[Sample]] = {name: [] for name in cases}
    for _ in range(_ROUNDS):
        for name, how in cases.items():
            samples[name].append(Sample(work, _IMPORT, *(how or ()), plain=how is None))
    rows = []
    for name, some in samples.items():
        whole = [one.start for one in some]
        end, cpu = median(one.end for one in some), median(one.cpu for one in some)
        note = f"then {seconds(end)} to its end; processors {seconds(cpu)}"
        if some[0].filled:
            note += f"; {min(one.filled for one in some)} to {max(one.filled for one in some)} filled"
        ratio = f"{median(whole) / median(s.start for s in samples['plain']):.2f} x"
        rows.append(Row(f"import torch is done: {name}", seconds(median(whole)), seconds(min(whole)), ratio, note))
    return rows


#: `ondol run` that writes down what its helper has taken of a processor.
_COUNTED = """
import os, sys, time
from ondol.jobs import beside
whole = beside._work
def work(*words):
    done = whole(*words)
    with open(os.environ["BENCH_CPU"], "w") as file:
        file.write(str(time.process_time()))
    return done
beside._work = work
from ondol.cli.main import run
sys.exit(run())
"""


def _compiling(work: Path) -> list[Row]:
    """A command that does nothing but compile. The goal: under 1 % for looking."""
    kernels, script = measure.ROOT / "examples/demo", measure.ROOT / "tests/programs/many_kernels.py"
    command = [sys.executable, str(script), str(kernels), str(work / "not-there")]
    env = measure.environment(TMPDIR=str(work), BENCH_CPU=str(work / "cpu"))
    looks: list[tuple[float, float]] = []
    gives: list[tuple[float, float]] = []
    for number in range(_ROUNDS):
        store = work / f"new-{number}"
        synthetic.make_store(store)
        for shares in (gives, looks):  # the second job finds all that the first one made
            before, wall = _cpu(), time.perf_counter()
            words = [sys.executable, "-c", _COUNTED, "run", "-q", "--store", str(store), "--", *command]
            subprocess.run(words, env=env, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            helper, used, took = float((work / "cpu").read_text()), _cpu() - before, time.perf_counter() - wall
            shares.append((helper / used, helper / took))
    return [
        Row(
            f"helper beside Triton: {name}",
            f"{100 * median(share for share, _ in shares):.2f} %",
            f"{100 * min(share for share, _ in shares):.2f} %",
            "",
            f"of the job's processor time; {100 * median(share for _, share in shares):.2f} % of one processor",
        )
        for name, shares in (("looks, packs and publishes 12 kernels", gives), ("looks: all are hits", looks))
    ]
