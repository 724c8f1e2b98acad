"""A crowd: 1,000 lanes, 1,000 scopes, 100,000 entries, and a job that may open 1,024 files."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import measure, synthetic
from bench.raw_tree import key_of
from bench.rows import Row, megabytes, seconds
from ondol.host import files, proctree
from ondol.store.entry import Address

_LANES = 1_000
#: Entries in each lane, in `main` and in a scope of the lane's own.
_IN_MAIN, _OF_ITS_OWN = 60, 40
_DESCRIPTORS = 1024
_ROUNDS = 3


def run() -> list[Row]:
    """One row per command; the note is the memory of its largest process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, most))  # and so for all that we start
    with measure.scratch() as work:
        store = work / "store"
        synthetic.make_store(store)
        started = time.perf_counter()
        size = sum(_make_lane(store / "lanes", number) for number in range(_LANES))
        note = f"{_LANES:,} lanes, {_LANES + 1:,} scopes, {_LANES * (_IN_MAIN + _OF_ITS_OWN):,} entries"
        rows = [Row("the store", megabytes(size), note=f"{note}; made in {time.perf_counter() - started:.0f} s")]
        where = ("--store", store)
        commands: dict[str, tuple[Sequence[str | Path], int]] = {
            "ondol run --fill-max 10kB -- true": (("run", "-q", *where, "--fill-max", "10kB", "--", "true"), _ROUNDS),
            "ondol store ls --json": (("store", "ls", *where, "--json"), _ROUNDS),
            "ondol store stats": (("store", "stats", *where), _ROUNDS),
            "ondol store gc, nothing to remove": (("store", "gc", *where, "--max-size", "1T"), _ROUNDS),
            "ondol store verify": (("store", "verify", *where), 1),
            "ondol store gc, half to remove": (("store", "gc", *where, "--max-size", f"{size // 2}"), 1),
        }
        return rows + [_row(work, name, command, rounds) for name, (command, rounds) in commands.items()]


def _make_lane(lanes: Path, number: int) -> int:
    """A lane as its user would have filled it, of a user of its own where we are root; returns its bytes."""
    owner = 100_000 + number if os.geteuid() == 0 else os.geteuid()
    lane = lanes / f"{owner}-{files.random_name()}"
    lane.mkdir(mode=0o755)
    total = 0
    for address, data in _packs(number):
        folder = lane.joinpath(*address[:3])
        folder.mkdir(parents=True, exist_ok=True)
        files.write_new(str(folder / f"{address.key}.pack"), data, 0o444, sync=False)
        total += len(data)
    for path in [lane, *lane.rglob("*")]:
        os.chown(path, owner, -1)
    return total


def _packs(number: int) -> Iterator[tuple[Address, bytes]]:
    for position in range(_IN_MAIN + _OF_ITS_OWN):
        serial = number * 1000 + position
        address = Address("main" if position < _IN_MAIN else f"pr-{number}", "triton", "any", key_of(serial))
        yield address, synthetic.pack_of(address, serial)


def _row(work: Path, name: str, command: Sequence[str | Path], rounds: int) -> Row:
    taken = [_measured(work, command) for _ in range(rounds)]
    times = [one for one, _ in taken]
    return Row(name, seconds(median(times)), seconds(min(times)), note=f"{max(peak for _, peak in taken):.0f} MB")


def _measured(work: Path, command: Sequence[str | Path]) -> tuple[float, float]:
    """(seconds by the wall clock, megabytes of its largest process) of a command that must succeed."""
    started = time.perf_counter()
    # By number: root must trust them as a site's root would, which named them writers.
    env = measure.environment(TMPDIR=str(work), ONDOL_TRUST=",".join(str(100_000 + number) for number in range(_LANES)))
    with open(work / "output", "wb") as output:
        child = subprocess.Popen(
            measure.ondol(*command),
            env=env,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        peak = 0
        while child.poll() is None:
            peak = max([peak, *map(_peak_of, [child.pid, *proctree.descendants(child.pid)])])
            time.sleep(0.02)
    took = time.perf_counter() - started
    said = (work / "output").read_text(errors="replace")[-2000:]
    if child.returncode or "warning" in said:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {child.returncode}: {said}")
    return took, peak / 1000


def _peak_of(pid: int) -> int:
    """The most memory that a process has had so far, in KiB: its helpers are not waited for, so nobody sums them up."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0  # it has just ended
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) if found else 0
