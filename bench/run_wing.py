"""The run wing against its peers, side by side in one run: `python -m bench.run_wing [--quick]`.

Every suite imports torch where it is installed (say so with the interpreter you run this with), because that is what
makes starting a process expensive. Peers that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAD = "import torch\n" if importlib.util.find_spec("torch") else "import json\n"
TRIVIAL = HEAD + "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_n(n): assert n >= 0\n"
CRASHES = HEAD + (
    "import os, pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_n(n):\n"
    "    if n % 5 == 2 and os.environ.get('CRASH') != 'no': os.kill(os.getpid(), 11)\n"
)

PLAIN = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]


def ours(*flags: str, devices: str = "cpu:2") -> list[str]:
    return [*PLAIN, f"--ondol-devices={devices}", "--ondol-journal=journal.jsonl", *flags]


def run(command: list[str], directory: Path) -> tuple[float, str]:
    start = time.monotonic()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    return time.monotonic() - start, (done.stdout.strip().splitlines() or [""])[-1]


def table(title: str, rows: dict[str, list[str]], source: str, rounds: int) -> dict[str, float]:
    """Rounds go round all rows, so that a slow minute of the machine hits all of them."""
    print(f"\n## {title}\n\n| how | seconds (median of {rounds}) | all | last line |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "test_it.py").write_text(source)
        times: dict[str, list[float]] = {how: [] for how in rows}
        last: dict[str, str] = {}
        for _ in range(rounds):
            for how, command in rows.items():
                (directory / "journal.jsonl").unlink(missing_ok=True)
                seconds, last[how] = run(command, directory)
                times[how].append(seconds)
    for how, all_times in times.items():
        listed = ", ".join(f"{t:.2f}" for t in all_times)
        print(f"| {how} | {statistics.median(all_times):.2f} | {listed} | {last[how].strip('= ')} |", flush=True)
    return {how: statistics.median(all_times) for how, all_times in times.items()}


def peers() -> dict[str, list[str]]:
    rows = {"plain pytest": PLAIN}
    if importlib.util.find_spec("xdist"):
        rows["xdist -n2"] = [*PLAIN, "-n2", "--max-worker-restart=100"]
    if importlib.util.find_spec("pytest_forked"):
        rows["pytest-forked"] = [*PLAIN, "--forked"]
    return rows


def bench_trivial(count: int, rounds: int) -> None:
    rows = {
        **peers(),
        "ondol, 2 warm workers": ours(),
        "ondol, 1 warm worker": ours(devices="cpu:1"),
        "ondol, one process per item": ours("--ondol-isolate=item"),
    }
    medians = table(f"{count} trivial tests", rows, TRIVIAL.format(count=count), rounds)
    isolated = (medians["ondol, one process per item"] - medians["plain pytest"]) / count * 1000
    print(f"\nwarm / plain: {medians['ondol, 2 warm workers'] / medians['plain pytest']:.2f}")
    print(f"one process per item: {isolated:.1f} ms an item more than plain pytest")


def bench_crashes(rounds: int) -> None:
    """The first row, where nothing crashes, is what the suite costs anyway: importing and collecting."""
    rows = {"plain pytest, without the crashes": ["env", "CRASH=no", *PLAIN]}
    rows |= {how: command for how, command in peers().items() if how == "xdist -n2"}
    rows["ondol, 2 warm workers"] = ours("--ondol-retries=0", "--ondol-judge=off")
    medians = table("20 tests, 4 of which crash", rows, CRASHES, rounds)
    if "xdist -n2" in medians:
        floor = medians["plain pytest, without the crashes"]
        ours_more, theirs_more = medians["ondol, 2 warm workers"] - floor, medians["xdist -n2"] - floor
        print(f"\nxdist / ondol: {medians['xdist -n2'] / medians['ondol, 2 warm workers']:.1f}")
        print(f"more than the suite costs anyway: xdist {theirs_more:.2f} s, ondol {ours_more:.2f} s")


def bench_replacement() -> None:
    """From the death of a worker to the next item running in its successor, from the journal of a crashing run."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "test_it.py").write_text(CRASHES)
        run(ours("--ondol-retries=0", devices="cpu:1"), directory)
        gaps, died = [], 0.0
        for line in (directory / "journal.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["e"] == "worker-ended" and event["abnormal"]:
                died = event["t"]
            elif event["e"] == "start" and died:
                gaps.append((event["t"] - died) * 1000)
                died = 0.0
    print("\n## From a worker's death to the next item running\n")
    print(f"median {statistics.median(gaps):.0f} ms, worst {max(gaps):.0f} ms, of {len(gaps)}")


def bench_many(count: int) -> None:
    """The controller's own cost with very many items."""
    print(f"\n## {count} collected items\n\n| how | seconds | peak resident memory of pytest itself |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "test_it.py").write_text(TRIVIAL.format(count=count))
        for how, command in {"plain pytest": PLAIN, "ondol, 2 warm workers": ours()}.items():
            before = time.monotonic()
            pid = _spawn(command, directory)
            _, _, usage = os.wait4(pid, 0)
            print(f"| {how} | {time.monotonic() - before:.1f} | {usage.ru_maxrss >> 10} MiB |", flush=True)


def _spawn(command: list[str], directory: Path) -> int:
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.returncode = 0  # waited for with wait4, which tells its memory
    return process.pid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, fewer items")
    quick = parser.parse_args().quick
    rounds = 1 if quick else 3
    machine = f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    print(f"Python {platform.python_version()}, {machine}")
    print(f"the suites {HEAD.strip()}; descriptors allowed: {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}")
    bench_trivial(200 if quick else 1000, rounds)
    bench_crashes(rounds)
    bench_replacement()
    bench_many(2000 if quick else 10_000)


if __name__ == "__main__":
    main()
