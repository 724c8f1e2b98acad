"""On a machine with an NVIDIA GPU: one small Triton suite, the ways people run it, side by side. `python -m bench.gpu`

Twelve tests in three files. Every way has the same warm Triton cache, so that what differs is processes, not compiling;
the last rows are cold and warm through the whole of `ondol test`, with a store.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES, TESTS = 3, 4
SUITE = """
import pytest, torch, triton
import triton.language as tl

@triton.jit
def scale(x, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

@pytest.mark.parametrize("block", [{first} << shift for shift in range({tests})])
def test_scale(block):
    x = torch.ones(5000, device="cuda")
    scale[(triton.cdiv(5000, block),)](x, 5000, 3.0, BLOCK=block)
    assert torch.all(x == 3)
"""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def write_suite(directory: Path) -> list[str]:
    """The node ids of all tests."""
    names = []
    for number in range(FILES):
        (directory / f"test_{number}.py").write_text(SUITE.format(first=32 << number, tests=TESTS))
        names += [f"test_{number}.py::test_scale[{(32 << number) << shift}]" for shift in range(TESTS)]
    return names


def timed(commands: list[list[str]], directory: Path, env: dict[str, str]) -> tuple[float, str]:
    """Seconds for all of them one after the other, and how the last one ended."""
    started = time.monotonic()
    for command in commands:
        done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True)
    last = [line for line in done.stdout.splitlines() if " passed" in line or " failed" in line]
    return time.monotonic() - started, f"status {done.returncode}: {(last or ['nothing'])[-1].strip('= ')}"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        names = write_suite(directory)
        env = {**os.environ, "TRITON_CACHE_DIR": str(directory / "cache")}
        without = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
        store = ["--store", str(directory / "store")]
        subprocess.run([sys.executable, "-m", "ondol", "store", "init", store[1]], check=True, capture_output=True)
        subprocess.run(PYTEST, cwd=directory, env=env, capture_output=True)  # compiles, for everybody
        ondol = [sys.executable, "-m", "ondol", "test", "-q", "-p", "no:cacheprovider"]
        rows: dict[str, tuple[list[list[str]], dict[str, str]]] = {
            "one process per test": ([[*PYTEST, node] for node in names], env),
            "one process per file": ([[*PYTEST, f"test_{number}.py"] for number in range(FILES)], env),
            "plain pytest, one process": ([PYTEST], env),
            "ondol, 1 worker": ([[*PYTEST, "--ondol-devices=cuda"]], env),
            "ondol, 2 workers on the GPU": ([[*PYTEST, "--ondol-devices=cuda", "--ondol-workers-per-device=2"]], env),
            "ondol, one process per item": ([[*PYTEST, "--ondol-devices=cuda", "--ondol-isolate=item"]], env),
            "ondol test with a store, cold": ([[*ondol, *store]], without),
            "ondol test with a store, warm": ([[*ondol, *store, "--require-warm"]], without),
        }
        if importlib.util.find_spec("xdist"):
            rows["xdist -n2"] = ([[*PYTEST, "-n2"]], env)
        print("| how | seconds | result |\n|---|---:|---|", flush=True)
        for how, (commands, environment) in rows.items():
            seconds, result = timed(commands, directory, environment)
            print(f"| {how} | {seconds:.1f} | {result} |", flush=True)


if __name__ == "__main__":
    main()
