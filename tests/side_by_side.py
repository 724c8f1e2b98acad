"""The whole suite in plain pytest processes that run side by side: most tests wait, few compute.

    python tests/side_by_side.py [--lanes N] [--remember] [PYTEST'S OWN OPTIONS …]

Each process gets some files; nothing is shared, so every test meets exactly what it meets under `python -m pytest`.
Green means: every file of the folder was run by somebody, and every process ended with status 0. `--remember` writes
the seconds of each file to `tests/seconds.json`, from which the next run makes batches of similar length.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import NamedTuple

from running_together import group_of

ROOT = Path(__file__).parent.parent
SECONDS = ROOT / "tests" / "seconds.json"
#: A process costs a second to start: short files of one folder share one, up to this many seconds of tests.
BATCH = 30.0
#: Nothing runs this long; a process that does has lost its own clock (`timeout` in pyproject.toml), and is ended.
LIMIT = 1800.0
#: Looking for all plugins that are installed and importing them costs every process more than a second.
FEW_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_timeout,_hypothesis_pytestplugin,ondol.pytest_plugin",
}
#: Most tests wait, some compute for a minute: one more process starts when so much of the processors' time was unused
#: for so many seconds.
IDLE, LOOK = 0.1, 3.0
#: How many files are named at the end for the processor time that they took.
NAMED = 20
CORES = os.cpu_count() or 1
KINDS = ("failed", "passed", "skipped", "error")


class Batch(NamedTuple):
    name: str
    files: list[str]
    seconds: float


class Outcome(NamedTuple):
    batch: Batch
    counts: Counter[str]
    skips: Counter[str]
    seconds: dict[str, float]  # of each file
    processor: dict[str, float]  # the same, of this and of all its processes; conftest.py counts
    cpu: float
    output: str
    trouble: str  # why it is red


def batches(files: list[str], seconds: dict[str, float]) -> list[Batch]:
    """Longest first; a file that nobody has measured yet counts as long."""
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(group_of(file), []).append(file)
    made: list[Batch] = []
    for name, members in groups.items():
        cost = sum(seconds.get(file, BATCH) for file in members)
        last = made[-1] if made else Batch("", [], BATCH)
        alone = name == members[0] and last.files[:1] == [last.name]  # neither of them is a group
        if alone and os.path.dirname(last.name) == os.path.dirname(name) and last.seconds + cost <= BATCH:
            made[-1] = Batch(last.name, [*last.files, *members], last.seconds + cost)
        else:
            made.append(Batch(name, members, cost))
    return sorted(made, key=lambda batch: -batch.seconds)


def run(batch: Batch, place: Path, options: list[str], running: set[subprocess.Popen[bytes]]) -> Outcome:
    place.mkdir()
    place.chmod(0o1777)  # for tests that become other users
    # Runs of pytest that tests start clean up what earlier ones left, also under each other's hands.
    environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(place), **FEW_PLUGINS}
    report, printed = place / "junit.xml", place / "output"
    words = [sys.executable, "-m", "pytest", f"--basetemp={place / 't'}", f"--junitxml={report}", *options]
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [*words, *batch.files],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        running.add(process)
        clock = threading.Timer(LIMIT, os.kill, (process.pid, signal.SIGKILL))
        clock.daemon = True
        clock.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        running.discard(process)
        clock.cancel()
    outcome = judge(batch, process.returncode, report, printed, partial=bool(options))
    if not outcome.trouble:
        clear(place)
    return outcome._replace(cpu=usage.ru_utime + usage.ru_stime)


def judge(batch: Batch, status: int, report: Path, printed: Path, partial: bool) -> Outcome:
    counts: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    seconds, processor = dict.fromkeys(batch.files, 0.0), dict.fromkeys(batch.files, 0.0)
    met: set[str] = set()
    try:
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        cases = []
    for case in cases:
        # A module that could not be collected, or is skipped as a whole, is a case without a class.
        where = f"{case.get('classname') or case.get('name')}.".replace(".", "/")
        file = next((file for file in batch.files if where.startswith(file.removesuffix(".py") + "/")), "")
        met.add(file)
        seconds[file] = seconds.get(file, 0.0) + float(case.get("time", "0"))
        counted = [float(one.get("value", "0")) for one in case.iter("property") if one.get("name") == "cpu"]
        processor[file] = processor.get(file, 0.0) + sum(counted)
        kinds = {"failure": "failed", "error": "error", "skipped": "skipped"}
        counts[next((kinds[child.tag] for child in case if child.tag in kinds), "passed")] += 1
        skips.update(child.get("message", "") for child in case if child.tag == "skipped")
    trouble = f"pytest ended with status {status}" if status and not (partial and status == 5) else ""
    unmet = [file for file in batch.files if file not in met]
    if not trouble and unmet and not partial:
        trouble = f"no test of {', '.join(unmet)} was run"
    return Outcome(batch, counts, skips, seconds, processor, 0.0, printed.read_text(errors="replace"), trouble)


def clear(place: Path) -> None:
    """What the tests wrote, unless a test has left something mounted there."""
    if str(place) not in Path("/proc/self/mountinfo").read_text():
        shutil.rmtree(place, ignore_errors=True)


class Processors:
    """How much of the machine's processor time nobody used."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self.stat = stat
        self.looked, (self.unused, self.all) = time.monotonic(), self.read()

    def read(self) -> tuple[int, int]:
        ticks = [int(field) for field in self.stat.read_text().split(maxsplit=9)[1:9]]
        return ticks[3] + ticks[4], sum(ticks)  # idle, and waiting for a disk

    def idle(self, after: float = LOOK) -> float:
        """The share since the last look; nothing if that was just now, when it says little."""
        if time.monotonic() - self.looked < after:
            return 0.0
        before, self.looked, (self.unused, self.all) = (self.unused, self.all), time.monotonic(), self.read()
        return (self.unused - before[0]) / max(1, self.all - before[1])


class Lanes:
    """Start the next batch whenever there is room for one; say how each went."""

    def __init__(self, waiting: list[Batch], place: Path, options: list[str]) -> None:
        self.waiting, self.place, self.options = list(waiting), place, options
        self.total = len(waiting)
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.outcomes: list[Outcome] = []
        self.running: set[subprocess.Popen[bytes]] = set()
        self.threads: list[threading.Thread] = []
        self.busy = 0

    def start(self) -> None:
        batch = self.waiting.pop(0)
        with self.lock:
            self.busy += 1
        place = self.place / str(self.total - len(self.waiting))
        self.threads.append(threading.Thread(target=self.lane, args=(batch, place)))
        self.threads[-1].start()

    def lane(self, batch: Batch, place: Path) -> None:
        outcome = run(batch, place, self.options, self.running)
        with self.lock:
            self.outcomes.append(outcome)
            self.say(outcome)
            self.busy -= 1
        self.ended.set()

    def say(self, outcome: Outcome) -> None:
        names = [outcome.batch.files[0], *(os.path.basename(file) for file in outcome.batch.files[1:])]
        took = f"{sum(outcome.seconds.values()):.0f} s, cpu {outcome.cpu:.0f} s"
        print(f"[{len(self.outcomes)}/{self.total}] {' '.join(names)}: {words(outcome.counts)} ({took})", flush=True)
        if outcome.trouble:
            print(f"{outcome.output}\nRED: {outcome.trouble}\n", flush=True)

    def run(self, least: int, most: int) -> list[Outcome]:
        """`least` at once, and up to `most` while they leave processors without work."""
        processors = Processors()
        try:
            while self.waiting:
                self.ended.clear()
                if self.busy < least or (self.busy < most and processors.idle() > IDLE):
                    self.start()
                else:
                    self.ended.wait(LOOK)
            for thread in self.threads:
                thread.join()
        except BaseException:  # Ctrl-C, or a CI system that has had enough: nothing new starts, what runs ends
            self.waiting.clear()
            for process in list(self.running):
                os.kill(process.pid, signal.SIGTERM)  # not `terminate`, which would reap it before its lane
            raise
        return self.outcomes


def words(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "nothing"


def finish(outcomes: list[Outcome], planned: int, began: float) -> int:
    red = [outcome for outcome in outcomes if outcome.trouble]
    processor = Counter({file: spent for outcome in outcomes for file, spent in outcome.processor.items()})
    for file, spent in processor.most_common(NAMED):
        print(f"PROCESSOR {spent:6.1f} s {file}")
    skips = sum((outcome.skips for outcome in outcomes), Counter())
    for reason, count in skips.most_common():
        print(f"SKIPPED [{count}] {reason}")
    for outcome in red:
        print(f"RED {' '.join(outcome.batch.files)}: {outcome.trouble} (its output is above)")
        print("\n".join(line for line in outcome.output.splitlines() if line.startswith(("FAILED ", "ERROR "))))
    lost = planned - len(outcomes)
    if lost:
        print(f"RED: {lost} batches were never run")
    total = sum((outcome.counts for outcome in outcomes), Counter())
    cpu = sum(outcome.cpu for outcome in outcomes)
    print(f"===== {words(total)} in {time.monotonic() - began:.2f}s (cpu {cpu:.0f}s) =====")
    return 1 if red or lost else 0


def compile_ondol() -> None:
    """Where `PYTHONDONTWRITEBYTECODE` is set, as in many images, each of the thousands of Pythons that tests start would
    compile Ondol anew: a third of what a small `ondol test` costs. By its hash, so that a test may edit a source.
    """
    compileall.compile_dir(ROOT / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--lanes", type=int, help="processes side by side (as many as keep the processors busy)")
    parser.add_argument("--remember", action="store_true", help=f"write {SECONDS.name}")
    parser.add_argument("--only", action="append", metavar="FOLDER", help="files below this folder; may be repeated")
    mine, options = parser.parse_known_args()
    began = time.monotonic()
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    files = [file for file in files if not mine.only or file.startswith(tuple(mine.only))]
    if not files:
        parser.error(f"no test file is below {', '.join(mine.only)}; folders are named as tests/unit")
    planned = batches(files, json.loads(SECONDS.read_text()) if SECONDS.exists() else {})
    compile_ondol()
    place = Path(tempfile.mkdtemp(prefix="side-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    outcomes = Lanes(planned, place, options).run(mine.lanes or CORES + 1, mine.lanes or 4 * CORES)
    if os.listdir(place):
        print(f"What the red processes left is in {place}")
    else:
        place.rmdir()
    if mine.remember:
        measured = json.loads(SECONDS.read_text()) if mine.only else {}
        measured |= {file: round(cost, 1) for outcome in outcomes for file, cost in outcome.seconds.items()}
        SECONDS.write_text(json.dumps(dict(sorted(measured.items())), indent=0) + "\n")
    return finish(outcomes, len(planned), began)


if __name__ == "__main__":
    sys.exit(main())
