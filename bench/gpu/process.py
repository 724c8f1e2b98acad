"""One command on the GPU's machine: as any user, with a limit, its output in a file, its largest process measured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import measure

#: Every step happens below here: on a local disk, and where other users can look.
PLACE = Path(os.environ.get("BENCH_GPU_DIR") or "/var/tmp/ondol-bench-gpu").resolve()
#: After its limit a command is interrupted, so that it says how far it came; then killed with all of its group.
GRACE = 20.0
_FOREIGN = ("ONDOL_", "TRITON_", "TILELANG_", "TORCHINDUCTOR_", "FLA_", "PYTEST_", "BENCH_EVENTS")


@dataclass(frozen=True)
class Person:
    """Who runs it, and with which umask."""

    uid: int = 0
    umask: int = 0o022

    @property
    def home(self) -> Path:
        return PLACE / f"home-{self.uid}"


ROOT = Person()


@dataclass
class Ended:
    """A command that is over."""

    status: int
    seconds: float
    #: Bytes, of the process of the tree that had most.
    largest: int
    began: float
    cut_off: bool
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def facts(self) -> dict[str, Any]:
        told = {"status": self.status, "seconds": round(self.seconds, 1), "largest_mib": self.largest >> 20}
        return {**told, "cut_off": True} if self.cut_off else told


def environment(person: Person, **extra: str) -> dict[str, str]:
    """A plain user's: nothing of a CI's or a tool's that happens to be set where this bench is run."""
    plain = measure.environment()
    kept = {name: value for name, value in plain.items() if not name.startswith(_FOREIGN)}
    path = [PLACE / "site", PLACE / "ondol", PLACE / "fla", PLACE / "tileops" / "src"]
    who = {"HOME": str(person.home), "USER": f"user{person.uid}", "LOGNAME": f"user{person.uid}"}
    return {**kept, **who, "PYTHONPATH": os.pathsep.join(map(str, path)), **extra}


def own(path: Path, person: Person) -> Path:
    """A directory of that person, made if need be."""
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, person.uid, person.uid)
    return path


def run(
    command: Sequence[str | Path],
    log: Path,
    limit: float,
    env: Mapping[str, str],
    cwd: Path = PLACE,
    person: Person = ROOT,
    beside: Callable[[int], None] | None = None,
) -> Ended:
    """Until it ends or its time is up. `beside` is called again and again with its pid meanwhile."""
    began, start = time.time(), time.monotonic()
    become: dict[str, Any] = {"user": person.uid, "group": person.uid, "extra_groups": []} if person.uid else {}
    with open(log, "wb") as output:
        words = [str(word) for word in command]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(
            words, cwd=cwd, env=dict(env), umask=person.umask, start_new_session=True, **streams, **become
        )
    steps = [(start + limit, signal.SIGINT), (start + limit + GRACE, signal.SIGKILL)]
    cut_off = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if steps and time.monotonic() > steps[0][0]:
            cut_off = True
            _send(process.pid, steps.pop(0)[1])
        if beside is not None:
            beside(process.pid)
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    _send(process.pid, signal.SIGKILL, whole_group=True)  # whatever it left behind would disturb the next step
    seconds = time.monotonic() - start
    return Ended(process.returncode, seconds, usage.ru_maxrss << 10, began, cut_off, log)


def _send(pid: int, number: signal.Signals, whole_group: bool = False) -> None:
    try:
        if number == signal.SIGKILL or whole_group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended


def python(*words: str | Path) -> list[str]:
    return [sys.executable, *map(str, words)]


_CACHES = re.compile(r"(\w[\w-]*): ([\d,]+) filled, ([\d,]+) used, ([\d,]+) new, ([\d,]+) published")


def caches(output: str) -> dict[str, dict[str, int]]:
    """What Ondol said about each tool's cache."""
    names = ("filled", "used", "new", "published")
    found = [(tool, [int(count.replace(",", "")) for count in counts]) for tool, *counts in _CACHES.findall(output)]
    return {tool: dict(zip(names, counts, strict=True)) for tool, counts in found}


def said(output: str, *having: str, most: int = 6) -> list[str]:
    """Different lines that hold all of these."""
    lines = [line.strip()[:400] for line in output.splitlines() if all(text in line for text in having)]
    return list(dict.fromkeys(lines))[:most]
