"""The batch runner before: one process for everything, so that a runtime is opened once and stays warm.

    runner.py BATCH [--devices 0,1] [--timeout SECONDS] [--only TASK,TASK]

Compiles all, then gives each runtime's tasks to a thread with a device. Its faults are the incident; none is made up.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chip

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Result = tuple[str, str, str, str]


class Task(dict[str, Any]):
    prepared: str

    def unique(self, name: str) -> Path:
        """One path per process, which was enough while every task had a process."""
        stem, _, suffix = name.partition(".")
        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"{stem}_{os.getpid()}.{suffix}"
        path.unlink(missing_ok=True)
        return path


def run_group(made: type, tasks: list[Task], device: str) -> Iterator[Result]:
    runtime = made()
    try:
        runtime.open(SimpleNamespace(visible=device))
    except OSError as error:
        yield from ((task["name"], device, "FAIL", str(error)) for task in tasks)
        return
    for task in tasks:
        try:
            runtime.run(task)
            yield task["name"], device, "PASS", ""
        except Exception as error:
            yield task["name"], device, "FAIL", str(error).splitlines()[0]


def run_groups(groups: list[tuple[type, list[Task]]], device: str) -> list[Result]:
    return [row for made, tasks in groups if tasks for row in run_group(made, tasks, device)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("batch", type=Path)
    parser.add_argument("--only", default="", metavar="TASK,TASK")
    parser.add_argument("--devices", default="0")
    parser.add_argument("--timeout", type=int, default=600)
    options = parser.parse_args()

    def too_late(*_: object) -> None:
        print(f"TIMEOUT: exceeded {options.timeout} s, aborting", flush=True)
        sys.exit(1)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(options.timeout)
    text = tomllib.loads(options.batch.read_text())
    only = options.only.split(",") if options.only else []
    tasks = [Task(entry) for entry in text["task"] if not only or entry["name"] in only]
    classes = {name: getattr(chip, about["class"].partition(":")[2]) for name, about in text["runtime"].items()}
    with ThreadPoolExecutor(4) as pool:
        for task, library in zip(tasks, pool.map(chip.Kernels().prepare, tasks), strict=True):
            task.prepared = library
    groups = [(classes[name], [task for task in tasks if task["runtime"] == name]) for name in classes]
    devices = options.devices.split(",")
    shares = [groups[place :: len(devices)] for place in range(len(devices))]
    with ThreadPoolExecutor(len(devices)) as pool:
        results = [row for rows in pool.map(run_groups, shares, devices) for row in rows]
    for row in results:
        print("RESULT", *row)
    return int(any(row[2] == "FAIL" for row in results))


if __name__ == "__main__":
    sys.exit(main())
