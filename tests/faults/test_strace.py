"""A real process, struck by the kernel: strace kills it before, or fails, chosen system calls of a publish.

A sample only (the sweep over every call is in-process), to show that what the wrappers strike is what really happens.
Never with --seccomp-bpf: strace 6.1 then injects no signals.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faults.crash_points import TALLY
from faults.operations import packs
from faults.publish_once import MARK
from faults.reader_view import store_violations, truth
from handmade import make_entry, trust_everybody
from ondol.store import marker
from ondol.store.directory import DirectoryStore

pytestmark = pytest.mark.fault
CALLS = ("openat", "write", "fchmod", "fsync", "close", "linkat", "unlinkat", "mkdirat")
ERRORS = ("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EROFS")
FAILING = ("openat", "write", "fsync", "linkat")
TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def strace() -> str:
    """The program, installed if we may."""
    if not shutil.which("strace") and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "strace"], capture_output=True, check=False)
    found = shutil.which("strace")
    if not found:
        pytest.skip("needs strace, and we are not root to install it")
    works = subprocess.run([found, "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    if works.returncode:
        pytest.skip(f"strace is not allowed here: {works.stderr.decode().strip()}")
    return found


def _publish(strace: str, store: Path, log: str, *inject: str) -> int:
    command = [strace, "-f", "-qq", "-o", log, "-e", f"trace={','.join(CALLS)},chdir", *inject]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-m", "faults.publish_once", str(store)]
    return subprocess.run([*command, *program], env=env, capture_output=True, check=False, cwd="/").returncode


def _positions(log: Path) -> dict[str, range]:
    """For each call, which of its occurrences are those of the publish itself."""
    before: Counter[str] = Counter()
    during: Counter[str] = Counter()
    marks = 0
    for line in log.read_text().splitlines():
        call = line.split("(")[0].split()[-1]
        if MARK in line:
            marks += 1
        elif marks == 0:
            before[call] += 1
        elif marks == 1:
            during[call] += 1
    assert marks == 2
    return {call: range(before[call] + 1, before[call] + during[call] + 1) for call in CALLS}


def _sample(positions: range, most: int) -> list[int]:
    """First, last and some between."""
    step = max(1, (len(positions) - 1) // max(1, most - 1))
    return sorted({*list(positions)[::step][: most - 1], positions[-1]}) if positions else []


def _violations(strace: str, template: Path, place: Path, inject: str) -> tuple[int, list[str]]:
    shutil.copytree(template, place)
    status = _publish(strace, place, "/dev/null", "-e", f"inject={inject}")
    entry, other = make_entry(1), make_entry(2)
    found = store_violations(place, truth([entry]), [entry.address] if status == 0 else [])
    store = DirectoryStore(str(place), trust_everybody)
    store.publish(packs(entry, other))
    store.close()
    found += store_violations(place, truth([entry, other]), [entry.address, other.address])
    return status, [f"{inject}: {text}" for text in found]


def test_kernel_kills_and_errors_break_nothing(strace: str, fast_place: Path) -> None:
    """Whatever the kernel does to a publishing process, the store verifies and the next publish works."""
    template = fast_place / "template"
    marker.create(str(template), marker.Writers(), shared=True)
    shutil.copytree(template, fast_place / "counted")
    log = fast_place / "log"
    assert _publish(strace, fast_place / "counted", str(log)) == 0
    positions = _positions(log)
    plans = [f"{call}:signal=KILL:when={at}" for call in CALLS for at in _sample(positions[call], 3)]
    kills = len(plans)
    plans += [f"{call}:error={error}:when={positions[call][-1]}" for call in FAILING for error in ERRORS]

    with ThreadPoolExecutor(2) as pool:
        places = [fast_place / f"store-{number}" for number in range(len(plans))]
        results = list(pool.map(lambda job: _violations(strace, template, *job), zip(places, plans, strict=True)))

    assert [text for _, found in results for text in found] == []
    struck = [status != 0 for status, _ in results]
    # A count that shifts by one (another locale, another start-up file) may miss its call; most must not.
    assert sum(struck) > len(plans) * 0.8
    TALLY["kills"] += sum(struck[:kills])
    TALLY["errors"] += sum(struck[kills:])
