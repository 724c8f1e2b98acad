"""A suite on three nodes of a real Slurm on this machine: one agent per node against one `srun` per test."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from bench import measure
from bench.rows import Row, seconds

_ITEMS, _FEW, _ROUNDS = 2000, 24, 3
_SUITE = "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_n(n): assert n >= 0\n"
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
#: Only our own plugin, for everybody alike.
_QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "ondol.pytest_plugin"}


def run() -> list[Row]:
    """Nodes share this machine's cores, so nothing here is a gain of parallelism: it is all overhead."""
    sys.path.insert(0, str(measure.ROOT / "tests" / "slurm"))
    cluster_module = import_module("cluster")
    if why := cluster_module.why_not():
        return [Row("not measured", "", note=why)]
    with tempfile.TemporaryDirectory(prefix="ondol-bench-") as name:
        cluster = cluster_module.Cluster(Path(name) / "cluster")
        try:
            with _allocation(cluster) as env:
                return _rows(Path(name), env)
        finally:
            cluster.close()


@contextmanager
def _allocation(cluster: Any) -> Iterator[dict[str, str]]:
    """All nodes, for as long as the bench takes: queueing is Slurm's and the same for everybody."""
    cluster.run("salloc", "--no-shell", "--nodes=3", "--gpus-per-node=2", check=False)
    (job,) = cluster.jobs()
    in_it = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n[1-3]"}
    yield measure.environment(**cluster.environment, **_QUICK, **in_it)
    cluster.run("scancel", job)


def _rows(work: Path, env: dict[str, str]) -> list[Row]:
    (work / "test_many.py").write_text(_SUITE.format(count=_ITEMS))
    (work / "test_few.py").write_text(_SUITE.format(count=_FEW))
    samples: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        for what, value in _round(work, env).items():
            samples.setdefault(what, []).append(value)
    peer = median(samples["one srun per test, 6 at a time"])
    rows = []
    for what, values in samples.items():
        ratio = "1" if "one srun" in what else f"{median(values) / peer:.2f} x" if f"{_FEW} tests" in what else ""
        rows.append(Row(what, seconds(median(values)), seconds(min(values)), ratio))
    return rows


def _round(work: Path, env: dict[str, str]) -> dict[str, float]:
    whole, journal = _ours(work, env, "test_few.py", "--ondol-engine=slurm")
    first = next(event["t"] for event in journal if event["e"] == "start")
    asked = next(event["t"] for event in journal if event["e"] == "node-waits")
    _, far = _ours(work, env, "test_many.py", "--ondol-engine=slurm")
    _, near = _ours(work, env, "test_many.py", "--ondol-devices=cpu:6")
    return {
        "one srun per test, 6 at a time": _one_srun_per_test(work, env),
        f"ondol --engine slurm, the same {_FEW} tests": whole,
        "from the first srun to the first item": first - asked,
        f"each of {_ITEMS} items on 3 nodes x 2 devices": _per_item(far),
        f"each of {_ITEMS} items on 6 slots of one machine": _per_item(near),
    }


def _ours(work: Path, env: dict[str, str], file: str, *flags: str) -> tuple[float, list[dict[str, Any]]]:
    journal = work / "journal.jsonl"
    journal.unlink(missing_ok=True)
    began = monotonic()
    command = [*_PYTEST, file, *flags, f"--ondol-journal={journal}"]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    took = monotonic() - began
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return took, [json.loads(line) for line in journal.read_text().splitlines()]


def _per_item(journal: list[dict[str, Any]]) -> float:
    """Between two verdicts, on average, when all nodes had come; without the first and the last fifth."""
    up = max((event["t"] for event in journal if event["e"] == "node-up"), default=0.0)
    verdicts = sorted(event["t"] for event in journal if event["e"] == "verdict" and event["t"] > up)
    steady = verdicts[len(verdicts) // 5 : -len(verdicts) // 5]
    return float((steady[-1] - steady[0]) / (len(steady) - 1))


def _one_srun_per_test(work: Path, env: dict[str, str]) -> float:
    def one(number: int) -> None:
        step = ["srun", f"--jobid={env['SLURM_JOB_ID']}", "--nodes=1", "--ntasks=1", "--overlap", "--gres=none"]
        step.append(f"--nodelist=n{number % 3 + 1}")
        subprocess.run([*step, *_PYTEST, f"test_few.py::test_n[{number}]"], cwd=work, env=env, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

    began = monotonic()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(_FEW)))
    return monotonic() - began
