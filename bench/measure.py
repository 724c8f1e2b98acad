"""How things are timed: whole processes by the wall clock, cases interleaved, in one clean environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Everything that a bench makes lies here, on one file system: by default in the checkout, where git ignores it and
#: `make clean` removes it; `BENCH_DIR=/scratch/bench python -m bench` measures another file system.
BUILD = Path(os.environ.get("BENCH_DIR") or ROOT / ".build" / "bench").resolve()
_FOREIGN = ("ONDOL_", "TRITON_", "GITHUB_", "GITLAB_", "CI_", "BUILDKITE", "JENKINS", "SLURM_", "RUNNER_")
#: Somebody's shell may ask Python to write no bytecode or to buffer nothing; a user's usually does not, and start-up is
#: twice as long without bytecode.
_PYTHON = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE", "PYTHONWARNINGS")

#: Does one round of a case and returns its seconds; whatever it prepares or removes around that is not counted.
Case = Callable[[], float]


def environment(**extra: str) -> dict[str, str]:
    """A user's plain environment: no CI, no Ondol or Triton settings, a home of its own, bytecode on."""
    home = BUILD / "home"
    home.mkdir(parents=True, exist_ok=True)
    dropped = ("CI", "XDG_CACHE_HOME", "TMPDIR", *_PYTHON)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN) and k not in dropped}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**kept, "HOME": str(home), "PYTHONPATH": path, "TRITON_DEFAULT_FP_FUSION": "1", **extra}


def ondol(*arguments: str | Path) -> list[str]:
    """`ondol …` as its installed script would start it, without depending on one being installed."""
    start = "import sys; from ondol.cli.main import run; sys.exit(run())"
    return [sys.executable, "-c", start, *map(str, arguments)]


def wall(command: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> float:
    """Run a command that must succeed, its output unseen; its seconds by the wall clock."""
    started = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    took = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stderr.decode()[-2000:]}")
    return took


def answer(command: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None) -> Any:
    """The last line that a command prints, as JSON."""
    done = subprocess.run([str(word) for word in command], env=env, cwd=cwd, capture_output=True, check=True)
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def interleave(cases: Mapping[str, Case], rounds: int) -> dict[str, list[float]]:
    """Every case once a round, the order turned round each time: what disturbs the machine disturbs all alike."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        names = list(cases) if number % 2 == 0 else list(cases)[::-1]
        for name in names:
            samples[name].append(cases[name]())
    return samples


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty directory beside the other bench files, removed at the end."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="work-", dir=BUILD))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def settle(*inputs: Path) -> None:
    """The same start for every case: the disk idle, these inputs and Python in memory; with no inputs, nothing.

    As root all caches are dropped first. ext4 was seen to search past recently deleted inodes one by one as long as
    it has them in memory: whoever creates 16,000 files after somebody removed as many takes several times as long,
    `cp` too.
    """
    os.sync()
    if can_drop_caches():
        drop_caches()
    for path in inputs:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                file.read_bytes()
    if inputs:
        wall([sys.executable, "-c", "import ondol.jobs.run_command, ondol.room.publish, zstandard"], environment())


def can_drop_caches() -> bool:
    return os.access("/proc/sys/vm/drop_caches", os.W_OK) and os.geteuid() == 0


def drop_caches() -> None:
    """Forget every cached page and inode, as on a machine that has just started. Needs root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def size_of(folder: Path) -> tuple[int, int]:
    """(files, bytes) below a directory."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
