"""A job that uses six entries of three thousand waits until all are unpacked: its start costs what is stored."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from handmade import key_of, make_entry, trust_everybody, write_triton_entry
from ondol.host import identity
from ondol.room import fill, harvest, select
from ondol.store.api import Stored
from ondol.store.directory import DirectoryStore
from ondol.tools.api import CacheDir
from ondol.tools.triton import Triton
from people import Program

pytestmark = pytest.mark.warm

TOOL = Triton()
NAMES = [f"k{n}" for n in range(6)]
#: Ondol for which more than two entries are many.
FEW = """
import sys
from ondol.room import select
select.AT_ONCE = 2
{more}
from ondol.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
#: Without what fills beside: what is there when the command starts stays all there is.
ALONE = "from ondol.jobs import beside; beside.start = lambda job: None"
#: How many entries are there at the start; then, with a number, when so many are; then kernels are used.
COMMAND = """
import os, sys, time
sys.path.insert(0, os.environ["PROGRAMS"])
import standin
def there():
    folders = os.listdir(standin.CACHE) if os.path.isdir(standin.CACHE) else []
    return sum(any(name.startswith("__grp__") for name in os.listdir(os.path.join(standin.CACHE, one))) for one in folders)
first = there()
while there() < int(os.environ["WAITS_FOR"]):
    time.sleep(0.02)
print(first, sum(standin.use(name) for name in sys.argv[1:]))
"""


@pytest.fixture
def full(program: Program, store_path: Path) -> Path:
    program.job(store_path, *NAMES)
    return store_path


def run(program: Program, store: Path, waits_for: int, *names: str, options: tuple[str, ...] = (), more: str = ""):
    """(entries when it started, hits, the report of Triton)"""
    said = store.parent / "report.json"
    words = ["run", "--store", str(store), "--tools", "triton", "--json", str(said), *options, "--"]
    done = subprocess.run(
        [program.python, "-c", FEW.format(more=more), *words, program.python, "-c", COMMAND, *names],
        env=program.env(PROGRAMS=str(program.programs), WAITS_FOR=str(waits_for)),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, hits = map(int, done.stdout.split())
    return first, hits, json.loads(said.read_text())["tools"]["triton"]


def test_the_rest_arrives_while_the_command_runs_and_hits(program: Program, full: Path) -> None:
    first, hits, tool = run(program, full, 6, *NAMES)
    assert first < 6 or tool["filled"] == 6
    assert (hits, tool["filled"], tool["used"], tool["new"]) == (6, 6, 6, 0)


def test_what_a_job_used_and_made_is_there_when_it_starts_again(program: Program, full: Path) -> None:
    wanted = ("k0", "k3", "k5", "own")
    assert run(program, full, 6, *wanted)[1] == 3
    first, hits, tool = run(program, full, 0, *wanted, more=ALONE)
    assert (first, hits, tool["filled"], tool["new"]) == (4, 4, 4, 0)
    first, hits, tool = run(program, full, 0, "k0", more=ALONE)  # another command line is another job
    assert (first, tool["filled"]) == (2, 2)


@pytest.mark.parametrize("option", ["--frozen", "--require-warm"])
def test_performance_job_waits_for_all(program: Program, full: Path, option: str) -> None:
    first, hits, tool = run(program, full, 0, *NAMES, options=(option,))
    assert (first, hits, tool["filled"]) == (6, 6, 6)


def stored(number: int, published: float) -> Stored:
    return Stored(make_entry(number).address, "lane", 0, 100, published, True)


def test_the_most_recently_useful_come_first() -> None:
    entries = [stored(n, float(n)) for n in range(9)]
    wanted = select.select(entries, lambda _: True, {make_entry(0).address: 1e9}, budget=10**6).wanted
    assert wanted == [[one] for one in (entries[0], *reversed(entries[1:]))]


def test_entry_that_the_tool_has_begun_is_left_to_the_tool(store: DirectoryStore, tmp_path: Path) -> None:
    """Filled beside the command: nothing of ours may get between files of the tool's."""
    made = write_triton_entry(tmp_path / "made", 1)
    cache = CacheDir(str(tmp_path / "made"), ours=True)
    (found,) = harvest.new_entries(TOOL, cache, (), identity.this_host()).found
    entry = harvest.read_entry(TOOL, cache, found, "main", {})
    room, stage = tmp_path / "room", tmp_path / "stage"
    (room / key_of(1)).mkdir(parents=True)
    stage.mkdir()
    here = CacheDir(str(room), ours=True)
    contents = fill.bind(TOOL, entry, here)
    with pytest.raises(fill.TooLate):
        fill.unpack(TOOL, entry, contents, here, str(stage), late=True)
    assert list((room / key_of(1)).iterdir()) == list(stage.iterdir()) == []
    (room / key_of(1)).rmdir()
    fill.unpack(TOOL, entry, contents, here, str(stage), late=True)
    assert {path.name for path in (room / key_of(1)).iterdir()} == {path.name for path in made.iterdir()}


def test_notes_of_jobs_are_kept_apart_and_forgotten(store: DirectoryStore) -> None:
    one, two = make_entry(1).address, make_entry(2).address
    store.note_use([one], "a" * 32)
    store.note_use([two], "b" * 32)
    store.note_use([two])
    assert store.uses_of("a" * 32) == {one}
    assert store.uses_of("b" * 32) == {two}
    assert store.uses_of("c" * 32) == set()
    assert set(store.last_uses()) == {two}
    store.note_use([two], "a" * 32)
    assert DirectoryStore(store.where, trust_everybody).uses_of("a" * 32) == {two}
