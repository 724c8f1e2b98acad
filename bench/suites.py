"""`pytest --ondol-devices=cpu:2` beside plain pytest and xdist -n2: seconds, processor time and the largest process.

Processor time is that of the whole tree of processes, and what it says holds on a busy machine too. The public suites
come from the package index that pip is configured with; where they cannot be had, they are left out and named.
`python -m bench.suites NAME… [--rounds N]` measures some of the suites.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import measure
from bench.rows import Row, markdown

TRIVIAL = "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_n(n): assert n >= 0\n"
SLEEPS = "import pytest, time\n@pytest.mark.parametrize('n', range({count}))\ndef test_n(n): time.sleep(0.005)\n"

#: Without a file of its own, pytest takes Ondol's settings, which stand further up.
SETTINGS = "[pytest]\n"
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
OURS = ["--ondol-devices=cpu:2", "--ondol-journal=journal.jsonl"]
WAYS = {"plain pytest": [], "xdist -n2": ["-n2"], "ondol, 2 workers": OURS}
#: As every run but a suite's first is: how long each item takes is known, and the longest go first.
AGAIN = {"ondol, 2 workers, again": [*OURS, "--ondol-estimates=durations.json"]}
#: With everything that it does around pytest: what somebody waits for who runs one test.
FRONT = ["-m", "ondol", "test", "-q", "--devices=cpu:2", "-p", "no:cacheprovider"]
ISOLATED = {"plain pytest": [], "ondol, a process per item": [*OURS, "--ondol-isolate=item"]}

#: A suite that somebody else wrote: what to install, and what of it pytest is given.
PUBLIC = {
    "numpy": (["numpy==2.4.6", "hypothesis==6.170.15"], ["numpy/lib", "numpy/ma", "numpy/polynomial"]),
    "jsonschema": (["jsonschema==4.25.1"], ["jsonschema/tests/test_jsonschema_test_suite.py"]),
}


class Measured(NamedTuple):
    """One run of one command."""

    wall: float
    processor: float
    #: Bytes, of the process of the tree that had most.
    largest: int
    last_line: str


class Suite(NamedTuple):
    """What is run, in which ways."""

    ways: dict[str, list[str]]
    arguments: list[str]
    source: str = ""
    requirements: Sequence[str] = ()


SUITES = {
    "1 trivial": Suite({**WAYS, "ondol test": FRONT}, ["test_it.py"], TRIVIAL.format(count=1)),
    "2,000 trivial": Suite(WAYS, ["test_it.py"], TRIVIAL.format(count=2000)),
    "500 of 5 ms": Suite(WAYS, ["test_it.py"], SLEEPS.format(count=500)),
    "20,000 trivial": Suite(WAYS, ["test_it.py"], TRIVIAL.format(count=20_000)),
    "300, a process each": Suite(ISOLATED, ["test_it.py"], TRIVIAL.format(count=300)),
    **{name: Suite({**WAYS, **AGAIN}, paths, requirements=wanted) for name, (wanted, paths) in PUBLIC.items()},
}


def once(flags: list[str], suite: Suite, root: Path) -> Measured:
    """A whole pytest; the kernel adds up what its descendants used, because each is waited for by its parent."""
    (root / "journal.jsonl").unlink(missing_ok=True)
    output = root / "output.txt"
    command = [sys.executable, *([] if flags == FRONT else PYTEST), *flags, *suite.arguments]
    environment = measure.environment()
    environment["PYTHONPATH"] += os.pathsep + str(root)
    environment["JSON_SCHEMA_TEST_SUITE"] = str(root / "json")
    with open(output, "wb") as file:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=root, env=environment, stdout=file, stderr=subprocess.STDOUT)
        _, _, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
    process.returncode = 0
    last = (output.read_text(errors="replace").strip().splitlines() or [""])[-1].strip("= ")
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, last)


@contextmanager
def place(suite: Suite) -> Iterator[Path]:
    """The directory that it is run in; a public suite is fetched once and kept."""
    if not suite.requirements:
        with measure.scratch() as root:
            (root / "test_it.py").write_text(suite.source)
            (root / "pytest.ini").write_text(SETTINGS)
            yield root
        return
    root = measure.BUILD / f"suite-{suite.requirements[0]}"
    if not root.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
        subprocess.run([*pip, "install", "--target", str(root), *suite.requirements], check=True)
        if suite.requirements[0].startswith("jsonschema"):
            # The cases themselves are in its source distribution only.
            source = ["--no-deps", "--no-binary", "jsonschema", "--dest", str(root), suite.requirements[0]]
            subprocess.run([*pip, "download", *source], check=True)
            shutil.unpack_archive(next(root.glob("jsonschema-*.tar.gz")), root)
            next(root.glob("jsonschema-*/json")).rename(root / "json")
    (root / "pytest.ini").write_text(SETTINGS)
    yield root


def compare(name: str, rounds: int) -> list[Row]:
    """Every way once a round, so that what disturbs the machine disturbs all alike."""
    suite = SUITES[name]
    found: dict[str, list[Measured]] = {way: [] for way in suite.ways}
    with place(suite) as root:
        (root / "durations.json").unlink(missing_ok=True)
        for way in ("plain pytest", *(AGAIN.keys() & suite.ways.keys())):
            once(suite.ways[way], suite, root)  # compiles, fills the kernel's caches, and notes how long items take
        for _ in range(rounds):
            for way, flags in suite.ways.items():
                found[way].append(once(flags, suite, root))
    plain = found["plain pytest"]
    return [_row(f"{name}: {way}", runs, plain) for way, runs in found.items()]


def _row(what: str, runs: list[Measured], plain: list[Measured]) -> Row:
    def ratio(field: str) -> float:
        return float(median(getattr(r, field) for r in runs) / median(getattr(r, field) for r in plain))

    walls, processor = [r.wall for r in runs], median(r.processor for r in runs)
    note = f"processor {processor:.2f} s, {ratio('processor'):.2f} x; largest process "
    note += f"{median(r.largest for r in runs) / (1 << 20):.0f} MiB, {ratio('largest'):.2f} x"
    return Row(what, f"{median(walls):.2f} s", f"{min(walls):.2f} s", f"{ratio('wall'):.2f} x", note)


def run(names: Sequence[str] = (), rounds: int = 3) -> list[Row]:
    """Every suite that can be had."""
    rows: list[Row] = []
    for name in names or SUITES:
        try:
            rows += compare(name, rounds)
        except (OSError, subprocess.CalledProcessError) as error:
            rows.append(Row(name, "not measured", note=f"cannot be fetched: {error}"))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(SUITES)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parsed = parser.parse_args()
    print(markdown(run(parsed.names, parsed.rounds)), flush=True)
