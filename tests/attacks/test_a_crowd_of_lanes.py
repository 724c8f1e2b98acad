"""A crowd: so many lanes, scopes and folders that a reader runs out of descriptors, by malice or by growth."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handmade import key_of, make_entry, trust_everybody
from ondol.errors import StoreError
from ondol.host import files
from ondol.store import check, directory, gc, gc_plan, lane, marker, pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Entry
from people import Program, needs_root

pytestmark = pytest.mark.warm

#: Small, so that the crowd can be small too: with one descriptor for each folder even this one does not fit.
DESCRIPTORS = 256
STRANGER = 12345
few = {resource.RLIMIT_NOFILE: DESCRIPTORS}


def put(lane_path: Path, entry: Entry, tool: str = "") -> None:
    """A pack in a lane, as its owner would have published it."""
    address = entry.address._replace(tool=tool or entry.address.tool)
    folder = lane_path.joinpath(*address[:3])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{address.key}.pack"
    path.write_bytes(pack.encode(entry._replace(address=address)))
    path.chmod(0o444)


def folders_in(store_path: Path) -> list[str]:
    return sorted(str(path.relative_to(store_path)) for path in (store_path / "lanes").rglob("*") if path.is_dir())


@pytest.fixture
def shared(public: Path, tmp_path: Path) -> Path:
    """A store that every user can reach."""
    path = public / tmp_path.name / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    return path


def check_commands(program: Program, store: Path, entries: int) -> None:
    """Every command sees all of them, with few descriptors."""
    where = ("--store", str(store), "--json")
    listed = program.ondol("store", "ls", *where, limits=few)
    assert (listed.returncode, listed.stdout.count('"key"')) == (0, entries), listed.stderr
    stats = program.ondol("store", "stats", *where, limits=few)
    assert json.loads(stats.stdout)["entries"] == entries
    verified = program.ondol("store", "verify", *where, limits=few)
    assert json.loads(verified.stdout) | {"good_bytes": 0} == {
        "format": "ondol-store-verify/1",
        "good": entries,
        "good_bytes": 0,
        "findings": [],
        "passed_over": [],
    }
    cleaned = program.ondol("store", "gc", *where, "--max-size", "0", "--dry-run", limits=few)
    assert len(json.loads(cleaned.stdout)["removed"]) == entries


def test_two_hundred_users_with_three_tools_each_stay_warm(program: Program, shared: Path) -> None:
    first = program.job(shared, "a")
    assert (first.status, first.compiled) == (0, 1), first
    for user in range(200):
        for tool in ("tilelang", "inductor", "numba"):
            put(shared / "lanes" / f"{os.geteuid()}-{user:032x}", make_entry(user), tool)
    again = program.job(shared, "a", limits=few)
    assert (again.status, again.hits, again.warnings) == (0, 1, []), again
    check_commands(program, shared, 601)


def test_hundreds_of_pull_requests_stay_warm(program: Program, shared: Path) -> None:
    program.job(shared, "a")
    for number in range(420):
        put(shared / "lanes" / f"{os.geteuid()}-{0:032x}", make_entry(number, scope=f"pr-{number}"))
    again = program.job(shared, "a", limits=few)
    assert (again.status, again.hits, again.warnings) == (0, 1, []), again
    check_commands(program, shared, 421)


@needs_root
@pytest.mark.root
def test_stranger_who_makes_a_thousand_lanes_costs_nobody_warmth(program: Program, shared: Path) -> None:
    program.job(shared, "a")
    for number in range(1100):
        made = shared / "lanes" / f"{STRANGER}-{number:032x}"
        made.mkdir()
        os.chown(made, STRANGER, STRANGER)
    again = program.job(shared, "a", limits=few)
    assert (again.status, again.hits, again.warnings) == (0, 1, []), again
    check_commands(program, shared, 1)
    program.ondol("store", "gc", "--store", str(shared), "--max-age", "90d")
    assert [name for name in folders_in(shared) if str(STRANGER) in name] == [], "root's gc removes empty lanes"
    assert program.job(shared, "a").hits == 1


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Whatever opens a file now is told EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(0)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


ACTS = {
    "index": lambda store: store.index("triton", ["main"]),
    "tools": lambda store: store.tools(["main"]),
    "everything": lambda store: list(store.everything()),
    "last_uses": lambda store: store.last_uses(),
    "verify": lambda store: check.verify(store, lambda _done, _total: None),
    "fetch": lambda store: store.fetch(store.stored),
}


@pytest.mark.parametrize("act", ACTS)
def test_out_of_descriptors_is_an_error_and_never_an_empty_store(store: DirectoryStore, act: str) -> None:
    store.publish([(make_entry(1).address, pack.encode(make_entry(1)))])
    store.note_use([make_entry(1).address])
    (store.stored,) = store.everything()  # type: ignore[attr-defined]
    store.close()
    store.__init__(store.where, trust_everybody)  # type: ignore[misc]
    with no_more_descriptors(), pytest.raises(StoreError) as caught:
        ACTS[act](store)
    assert "Too many open files" in caught.value.because
    assert "ulimit -n" in caught.value.hint


@pytest.mark.parametrize("deep", range(1, 5))
def test_out_of_descriptors_half_way_down_is_an_error_too(store: DirectoryStore, deep: int) -> None:
    """The lane opens, and its folders do not: `verify` must not call that "0 entries good, none bad"."""
    store.publish([(make_entry(1).address, pack.encode(make_entry(1)))])
    real, opened = lane.open_checked, []

    def count(*arguments: object) -> tuple[int, int]:
        opened.append(arguments)
        if len(opened) < deep:
            return real(*arguments)  # type: ignore[arg-type]
        with no_more_descriptors():
            return real(*arguments)  # type: ignore[arg-type]

    lane.open_checked = count  # type: ignore[assignment]
    try:
        with pytest.raises(StoreError, match="Too many open files"):
            check.verify(store, lambda _done, _total: None)
    finally:
        lane.open_checked = real


def test_job_that_cannot_open_the_store_says_why_and_runs(program: Program, shared: Path) -> None:
    """C4, with the reason: a limit so low that the helper can open the store and nothing in it."""
    program.job(shared, "a")
    said = set()
    for limit in range(6, 24):
        command = ["run", "--store", str(shared), "--tools", "triton", "--", "/bin/true"]
        done = program.ondol(*command, limits={resource.RLIMIT_NOFILE: limit})
        if "could not be read whole" in done.stderr:
            assert done.returncode == 0, done.stderr
            said.add(next(line for line in done.stderr.splitlines() if "could not be read whole" in line))
    assert said
    assert all("Too many open files" in line and "ulimit -n" in line for line in said), said


# -- empty folders ----------------------------------------------------------------------------------------------------


def empty_out(store: DirectoryStore, later: float = 2 * gc.FOLDER_AGE) -> None:
    """By a clock that goes ahead, also folders that were made just now are old enough to go."""
    gc.clean(store, gc_plan.StoreLimits(max_bytes=0), time.time() + later, dry_run=False)


def test_gc_removes_empty_folders_and_lanes(store: DirectoryStore, store_path: Path) -> None:
    for number in range(5):
        entry = make_entry(number, scope=f"pr-{number}")
        store.publish([(entry.address, pack.encode(entry))])
    gc.clean(store, gc_plan.StoreLimits(max_age=1e12), time.time(), dry_run=False)
    assert len(list(store.everything())) == 5
    empty_out(DirectoryStore(str(store_path), trust_everybody))
    assert folders_in(store_path) == []


def test_folders_that_a_publisher_has_just_made_are_left_to_him(store: DirectoryStore, store_path: Path) -> None:
    (store_path / "lanes" / f"{os.geteuid()}-0" / "main" / "triton").mkdir(parents=True)
    empty_out(store, later=0.0)
    assert len(folders_in(store_path)) == 3


def test_dry_run_removes_no_folder(store: DirectoryStore, store_path: Path) -> None:
    (store_path / "lanes" / f"{os.geteuid()}-0" / "main" / "triton").mkdir(parents=True)
    gc.clean(store, gc_plan.StoreLimits(max_bytes=0), time.time(), dry_run=True)
    assert len(folders_in(store_path)) == 3


def test_publisher_survives_the_loss_of_its_folder(
    store: DirectoryStore, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaning takes the empty folder away between the publisher's making it and its using it, three times."""
    real = files.link_new
    lost: list[str] = []

    def link(source: str, source_fd: int, target: str, target_fd: int) -> bool:
        if len(lost) < 3:
            empty_out(DirectoryStore(str(store_path), trust_everybody))
            lost.append(target)
        return real(source, source_fd, target, target_fd)

    monkeypatch.setattr(files, "link_new", link)
    entries = [make_entry(number, scope=f"pr-{number % 2}") for number in range(4)]
    outcomes = store.publish([(entry.address, pack.encode(entry)) for entry in entries])
    assert [outcome.new for outcome in outcomes] == [True] * 4
    assert len(lost) == 3
    assert {s.address for s in DirectoryStore(str(store_path), trust_everybody).everything()} == {
        entry.address for entry in entries
    }


def test_publisher_survives_the_loss_of_its_lane(
    store: DirectoryStore, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = directory._write_durably
    lost: list[object] = []

    def write(*arguments: object) -> None:
        if not lost:
            lost.append(store.my_lane().name)
            empty_out(DirectoryStore(str(store_path), trust_everybody))
            assert folders_in(store_path) == []
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(directory, "_write_durably", write)
    (outcome,) = store.publish([(make_entry(1).address, pack.encode(make_entry(1)))])
    assert outcome.new
    assert store.my_lane().name not in lost
    assert len(list(DirectoryStore(str(store_path), trust_everybody).everything())) == 1


def test_publishers_beside_a_gc_that_never_stops_succeed(store_path: Path) -> None:
    """For real: one process does nothing but clean, the other publishes, and every publish is acknowledged."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            while os.getppid() != 1:
                empty_out(DirectoryStore(str(store_path), trust_everybody), later=0.0)
                os.write(writing, b".")
        finally:
            os._exit(0)
    os.close(writing)
    try:
        os.read(reading, 1)
        for number in range(150):
            mine = DirectoryStore(str(store_path), trust_everybody)
            (outcome,) = mine.publish([(make_entry(number).address, pack.encode(make_entry(number)))])
            assert outcome.new
            mine.close()
    finally:
        os.close(reading)
        os.waitpid(pid, 0)


def test_descriptors_stay_few_however_many_folders_are_read(store: DirectoryStore, store_path: Path) -> None:
    for number in range(60):
        put(store_path / "lanes" / f"{os.geteuid()}-{number % 6:032x}", make_entry(number, scope=f"pr-{number}"))
    before = len(os.listdir("/proc/self/fd"))
    for stored in store.everything():
        store.fetch(stored)
        assert len(os.listdir("/proc/self/fd")) <= before + 12
    assert sorted(s.address.key for s in store.everything()) == sorted(key_of(number) for number in range(60))
