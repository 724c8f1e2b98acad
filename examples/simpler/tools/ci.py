"""The batch runner before: one process for everything, so that a runtime is opened once and stays warm.

    tools/ci.py [-d 0-1] [-r RUNTIME] [-c PINNED] [-t SECONDS] [--build-runtime]

The shape of the proposed one: find, compile all, give each runtime's tasks to a thread with a device, three attempts,
a second pass with the pinned PTO-ISA, a table. Its faults are the incident; none is made up.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from chip.batch import ROOT, CompiledTask, TaskSpec, compile_task, discover_tasks, run_single_task
from chip.interface import ChipWorker

MAX_RETRIES = 3
#: Name, device, attempt, seconds, error.
Result = tuple[str, int, int, float, str]


def prebuilt(output: Path, _inputs: list[object], make: Callable[[Path], object], *, build: bool) -> Path:
    """What is there is used, whatever it was built from."""
    if build or not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        make(output)
    return output


def device_worker(device: int, groups: list[list[CompiledTask]]) -> list[Result]:
    results: list[Result] = []
    queue = [(group, 0) for group in groups]
    while queue:
        tasks, attempt = queue.pop(0)
        bins = tasks[0].runtime_bins
        worker = ChipWorker()
        try:
            worker.init(device, str(bins.host_path), bins.aicpu_path.read_bytes(), bins.aicore_path.read_bytes())
        except OSError as error:
            results += [(task.spec.name, device, attempt, 0, str(error)) for task in tasks]
            break
        for task in tasks:
            start = time.monotonic()
            try:
                run_single_task(task, worker)
                results.append((task.spec.name, device, attempt, time.monotonic() - start, ""))
            except Exception as error:
                results.append((task.spec.name, device, attempt, time.monotonic() - start, str(error)))
                if attempt + 1 < MAX_RETRIES:
                    queue.append(([task], attempt + 1))
    return results


def run_pass(specs: list[TaskSpec], devices: list[int], build: bool) -> list[Result]:
    names = sorted({spec.runtime_name for spec in specs})
    with ThreadPoolExecutor(4) as pool:
        compiled = list(pool.map(lambda spec: compile_task(spec, partial(prebuilt, build=build)), specs))
    groups = [[task for task in compiled if task.spec.runtime_name == name] for name in names]
    shares = [groups[place :: len(devices)] for place in range(len(devices))]
    with ThreadPoolExecutor(len(devices)) as pool:
        return [result for results in pool.map(device_worker, devices, shares) for result in results]


def print_summary(results: list[Result]) -> int:
    final = {result[0]: result for result in results}
    for name, device, attempt, seconds, error in final.values():
        print("RESULT", name, device, attempt + 1, f"{seconds:.0f}s", "FAIL " + error if error else "PASS")
    return int(any(result[4] for result in final.values()))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="0")
    parser.add_argument("-r", "--runtime")
    parser.add_argument("-c", "--pinned")
    parser.add_argument("-t", "--timeout", type=int, default=600)
    parser.add_argument("--build-runtime", action="store_true")
    options = parser.parse_args()

    def too_late(*_: object) -> None:
        print(f"[CI] TIMEOUT: exceeded {options.timeout}s limit, aborting", flush=True)
        sys.exit(1)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(options.timeout)
    first, _, last = options.device.partition("-")
    devices = list(range(int(first), int(last or first) + 1))
    specs = [spec for spec in discover_tasks(ROOT) if options.runtime in (None, spec.runtime_name)]
    results = run_pass(specs, devices, options.build_runtime)
    failed = {result[0] for result in results if result[4]} - {result[0] for result in results if not result[4]}
    if failed and options.pinned:
        os.environ["PTO_ISA_ROOT"] = options.pinned
        results += run_pass([spec for spec in specs if spec.name in failed], devices, options.build_runtime)
    signal.alarm(0)
    return print_summary(results)


if __name__ == "__main__":
    sys.exit(main())
