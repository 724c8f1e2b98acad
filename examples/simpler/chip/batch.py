"""The project's own, the same before and after: cases are found, compiled and compared with their golden results."""

from __future__ import annotations

import os
import runpy
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chip.interface import ChipCallable, ChipWorker, note

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-shared", "-fPIC", *os.environ.get("CFLAGS", "-O1").split()]
#: (output, what it is built from, how to build it) → the file to use.
Built = Callable[[Path, list[object], Callable[[Path], object]], Path]


@dataclass(frozen=True)
class TaskSpec:
    name: str
    task_dir: Path
    runtime_name: str
    timeout_s: int


@dataclass(frozen=True)
class RuntimeBinaries:
    host_path: Path
    aicpu_path: Path
    aicore_path: Path


@dataclass(frozen=True)
class CompiledTask:
    spec: TaskSpec
    chip_callable: ChipCallable
    runtime_bins: RuntimeBinaries


def discover_tasks(root: Path) -> list[TaskSpec]:
    """By directories: `cases/RUNTIME/CASE` with a golden.py and a kernels/kernel_config.py."""
    found = []
    for config in sorted(root.glob("cases/*/*/kernels/kernel_config.py")):
        case = config.parents[1]
        if (case / "golden.py").is_file():
            limits = runpy.run_path(str(config)).get("RUNTIME_CONFIG", {})
            name = case.relative_to(root / "cases").as_posix()
            found.append(TaskSpec(name, case, case.parent.name, limits.get("timeout_s", 600)))
    return found


def compile_task(spec: TaskSpec, built: Built) -> CompiledTask:
    orchestration = runpy.run_path(str(spec.task_dir / "kernels" / "kernel_config.py"))["ORCHESTRATION"]
    bins = RuntimeBinaries(*(_runtime_binary(spec.runtime_name, part, built) for part in ("host", "aicpu", "aicore")))
    isa = Path(os.environ.get("PTO_ISA_ROOT", ROOT / "deps" / "pto-isa")).resolve()
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "orch.so"
        _gcc(spec.task_dir / "kernels" / orchestration["source"], library, f"-I{isa}")
        return CompiledTask(spec, ChipCallable(orchestration["function_name"], library.read_bytes()), bins)


def run_single_task(task: CompiledTask, worker: ChipWorker) -> None:
    golden: dict[str, Any] = runpy.run_path(str(task.spec.task_dir / "golden.py"))
    data = golden["generate_inputs"]()
    actual, expected = worker.run(task.chip_callable, data), golden["compute_golden"](data)
    print(f"{task.spec.name}: {actual}")
    assert actual == expected, f"wrong result: {actual}, not {expected}"


def _runtime_binary(runtime: str, part: str, built: Built) -> Path:
    source = ROOT / "src" / f"{part}.c"
    version = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout
    output = ROOT / "build" / "lib" / runtime / f"{part}.so"
    return built(output, [source, FLAGS, version], lambda path: _gcc(source, path, f'-DRUNTIME="{runtime}"'))


def _gcc(source: Path, output: Path, *flags: str) -> None:
    note("compile", source.name, os.getpid())
    command = ["gcc", *FLAGS, *flags, "-o", str(output), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{source.name} does not compile:\n{done.stderr}")
