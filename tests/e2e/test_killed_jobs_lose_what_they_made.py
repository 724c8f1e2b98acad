"""A job that is killed, preempted or cut off with its Ondol gives nothing: what is whole must be published before."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.test_red_jobs_stay_cold import PLAIN
from handmade import write_triton_entry
from ondol.errors import EntryRefused
from ondol.host import identity, process, proctree
from ondol.room import harvest
from ondol.store import pack
from ondol.tools.api import CacheDir
from ondol.tools.triton import Triton
from people import Program

TOOL = Triton()
#: Ondol, looking more often than it does for people; and how to run the rest of a test's words with it.
SOON = """
import sys
from ondol.jobs import beside
beside.PAUSE, beside.STILL = 0.02, 0.05
from ondol.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
#: For a command: compile, and do not go on before the store has so many packs.
WAITING = """
import os, sys, time
sys.path.insert(0, os.environ["PROGRAMS"])
import standin
def packs(store):
    return sum(name.endswith(".pack") for _, _, names in os.walk(os.path.join(store, "lanes")) for name in names)
def wait_for(store, count):
    while packs(store) < count:
        time.sleep(0.02)
"""
ROUNDS = int(os.environ.get("KILL_ROUNDS", "25"))


class Started:
    """`ondol run` on a store, beside us."""

    def __init__(self, program: Program, store: Path, script: str, *options: str) -> None:
        self.report = store.parent / "report.json"
        self.tag = uuid.uuid4().hex
        words = ["run", "--store", str(store), "--tools", "triton,cupy", "--json", str(self.report), *options, "--"]
        self.process = subprocess.Popen(
            [program.python, "-c", SOON, *words, program.python, "-c", script, str(store)],
            env=program.env(PROGRAMS=str(program.programs), TAG=self.tag),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self) -> dict:
        out, err = self.process.communicate("go\n", timeout=120)
        assert self.process.returncode == 0, out + err
        return json.loads(self.report.read_text())["tools"]

    def kill_everything(self) -> None:
        kill_all(self.tag)
        self.process.communicate()

    def helpers(self, command: int, count: int) -> list[int]:
        """Those beside the command, when they are so many: what filled the room may not have died yet."""
        while True:
            alive = [pid for pid in proctree.children(self.process.pid) if pid != command and proctree.alive(pid)]
            if len(alive) == count:
                return alive
            time.sleep(0.01)


def kill_all(tag: str) -> None:
    """Of everybody who was started with this in the environment, or is born of one of them while we look.

    Returns when they are dead: until then one may end what it does in the kernel, such as a rename into the store.
    """

    def is_one(pid: int) -> bool:
        return tag in process.read(f"/proc/{pid}/environ") and proctree.alive(pid)

    while pids := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_one(pid)]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def verify(program: Program, store: Path) -> None:
    done = program.ondol("store", "verify", "--store", str(store))
    assert done.returncode == 0, done.stdout + done.stderr


def test_entry_is_in_the_store_before_the_command_ends_and_is_counted_once(program: Program, store_path: Path) -> None:
    script = WAITING + "standin.use('one'); wait_for(sys.argv[1], 1); standin.use('two')"
    tool = Started(program, store_path, script).finish()["triton"]
    assert (tool["new"], tool["published"], tool["already_there"]) == (2, 2, 0)
    assert tool["beside"] >= 1
    assert program.job(store_path, "one", "two").hits == 2


def test_what_was_made_survives_a_kill_of_everything(program: Program, store_path: Path) -> None:
    """The plain file that nobody vouches for is not settled yet, however long the store takes: it stays out."""
    script = (
        WAITING + PLAIN + "plain('young', -3600); standin.use('one'); wait_for(sys.argv[1], 1); print(1, flush=True)"
    )
    job = Started(program, store_path, script + "; sys.stdin.read()")
    assert job.line() == "1"
    job.kill_everything()
    verify(program, store_path)
    (pack,) = store_path.rglob("*.pack")
    assert pack.parts[-3] == "triton"
    assert program.job(store_path, "one").hits == 1


def test_killed_job_has_told_what_it_used(program: Program, store_path: Path) -> None:
    """The next one of its name gets that first. What the last one noted is not lost to one that was killed early."""
    program.job(store_path, "filled")
    script = WAITING + "standin.use(sys.stdin.readline().strip()); standin.use('filled'); sys.stdin.read()"
    for number, title in enumerate(("one", "two"), start=2):
        job = Started(program, store_path, script)
        assert job.process.stdin is not None
        job.process.stdin.write(f"{title}\n")
        job.process.stdin.flush()
        while len(noted(store_path)) < number:
            assert job.process.poll() is None
            time.sleep(0.02)
        job.kill_everything()
        assert noted(store_path) == {titles(store_path)[one] for one in ("filled", "one", "two")[:number]}


def noted(store: Path) -> set[str]:
    """The keys of what jobs of this name needed, of the last one but `program.job`'s."""
    notes = sorted(store.glob("lanes/*/usage/job-*"), key=lambda path: path.stat().st_mtime)[1:]
    return {line.rpartition("/")[2] for note in notes for line in note.read_text().split("\n")}


def titles(store: Path) -> dict[str, str]:
    packs = [pack.inspect(path.read_bytes()) for path in store.rglob("*.pack")]
    return {found.title: found.address.key for found in packs}


def test_plain_file_is_published_beside_when_it_is_settled(program: Program, store_path: Path) -> None:
    script = WAITING + PLAIN + "plain('old', 100); wait_for(sys.argv[1], 1)"
    tool = Started(program, store_path, script).finish()["cupy"]
    assert (tool["new"], tool["published"], tool["beside"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("options", "helpers"),
    [
        ((), 1),
        (("--publish", "on-success"), 0),
        (("--publish", "never"), 0),
        (("--frozen",), 0),
        (("--tools", "none"), 0),
    ],
)
def test_only_a_job_that_publishes_however_it_ends_publishes_beside(
    program: Program, store_path: Path, options: tuple[str, ...], helpers: int
) -> None:
    job = Started(program, store_path, "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()", *options)
    assert len(job.helpers(int(job.line()), helpers)) == helpers
    job.process.communicate("go\n")


def test_helper_gives_way_and_ends_with_its_ondol(program: Program, store_path: Path) -> None:
    job = Started(program, store_path, "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()")
    command = int(job.line())
    (helper,) = job.helpers(command, 1)
    while os.getpriority(os.PRIO_PROCESS, helper) != 19:  # it has been forked, and may still wait for a processor
        time.sleep(0.01)
    ended = os.pidfd_open(helper)
    job.process.kill()
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)
    os.kill(command, signal.SIGKILL)
    job.process.communicate()


def test_looking_beside_is_no_use_of_what_was_filled(program: Program, store_path: Path) -> None:
    program.job(store_path, "filled")
    script = WAITING + "standin.use('other'); wait_for(sys.argv[1], 2)"
    tool = Started(program, store_path, script).finish()["triton"]
    assert (tool["filled"], tool["used"], tool["beside"]) == (1, 0, 1)


def test_entry_that_a_second_writer_works_on_is_left_alone(tmp_path: Path) -> None:
    """He wrote a file long ago and moves it in now: no time of the file tells, but that of its name."""
    folder = write_triton_entry(tmp_path / "cache", 1)
    cache = CacheDir(str(tmp_path / "cache"), ours=True)
    (found,) = harvest.new_entries(TOOL, cache, (), identity.this_host()).found
    scanned = max(status.st_ctime_ns + 1000 for status in cache.listing(found.folder).values()) / 1e9
    harvest.read_entry(TOOL, cache, found, "main", {}, unchanged_since=scanned)
    other = tmp_path / "add.ttir"
    other.write_bytes(b"module{}\n")
    os.utime(other, ns=(0, (folder / "add.ttir").stat().st_mtime_ns))
    while other.stat().st_ctime <= scanned:  # the file system's clock ticks a few hundred times a second
        other.chmod(0o644)
    os.replace(other, folder / "add.ttir")
    with pytest.raises(EntryRefused, match="is being written"):
        harvest.read_entry(TOOL, cache, found, "main", {}, unchanged_since=scanned)


COMPILING = WAITING + (
    "import os\n"
    "for n in range(40):\n"
    "    print('hit' if standin.use(f'k{n}') else 'compiled', flush=True)\n"
    "    time.sleep(0.01)\n"
)


def test_job_killed_at_any_moment_leaves_the_next_one_warmer(program: Program, store_path: Path) -> None:
    """Everything at once, by SIGKILL, after so many kernels: what is stored verifies, and hits never become fewer."""
    numbers = random.Random(12)
    hits = [0]
    for _ in range(ROUNDS):
        job = Started(program, store_path, COMPILING)
        seen = [job.line() for _ in range(numbers.randint(1, 40))]
        job.kill_everything()
        # Those that were hits are hits again; the next ones are what was published before the kill.
        stored = {path.stem for path in store_path.rglob("*.pack")}
        assert seen.count("hit") <= len(stored)
        hits.append(len(stored))
        assert hits[-1] >= hits[-2], hits
    verify(program, store_path)
    sys.stderr.write(f"hits of the next job after each kill: {hits}\n")
    assert hits[-1] > 0
    last = program.job(store_path, *(f"k{n}" for n in range(40)))
    assert last.hits == hits[-1]


SUITE = WAITING + (
    "def test_waits():\n"
    "    standin.use('one')\n"
    "    wait_for(os.environ['STORE'], 1)\n"
    "def test_then():\n"
    "    standin.use('two')\n"
)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_suite_publishes_beside_its_items(program: Program, store_path: Path, tmp_path: Path, start: str) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    said = tmp_path / "report.json"
    words = ["test", "--devices=cpu:1", "--start", start, "--store", str(store_path), "-p", "no:cacheprovider"]
    env = {**os.environ, "STORE": str(store_path), "PROGRAMS": str(program.programs), "ONDOL_JSON": str(said)}
    done = subprocess.run(
        [sys.executable, "-c", SOON, *words, "test_suite.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tool = json.loads(said.read_text())["tools"]["triton"]
    assert (tool["new"], tool["published"]) == (2, 2)
    assert tool["beside"] >= 1


@pytest.mark.parametrize("trouble", ["gone", "full"])
def test_store_that_fails_beside_is_said_once_at_the_end(
    program: Program, store_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is printed into the command's output while it runs."""
    breaking: dict[str, Callable[[Path], object]] = {
        "gone": lambda store: store.rename(f"{store}.away"),
        "full": lambda store: (store / "ondol-store.json").write_text("{"),
    }
    script = WAITING + "print(1, flush=True); sys.stdin.read(); standin.use('one')"
    job = Started(program, store_path, script)
    job.line()
    breaking[trouble](store_path)
    _, err = job.process.communicate("go\n", timeout=120)
    assert job.process.returncode == 0
    assert len([line for line in err.splitlines() if "warning" in line]) == 1, err
    assert "0 published (the store failed: " in err
