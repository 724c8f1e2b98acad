"""`ondol store stats` that counts twice, believes strangers, grows without end, or gives a collector half a file."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from handmade import trust_everybody
from ondol.host import files
from ondol.report import store_page
from ondol.store import lane, marker, usage
from ondol.store.api import Stat
from ondol.store.directory import DirectoryStore
from people import Program, needs_root

pytestmark = pytest.mark.warm

TODAY = int(time.time() // usage.DAY)
STRANGER = 2003


@pytest.fixture
def shared(public: Path, tmp_path: Path) -> Path:
    path = public / tmp_path.name / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    return path


def jobs(program: Program, store: Path, *options: str) -> list[dict[str, object]]:
    done = program.ondol("store", "stats", "--store", str(store), "--json", *options)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["jobs"])


def counted(program: Program, store: Path, *options: str) -> dict[str, float]:
    """Of all days together: jobs of one test may be on both sides of midnight."""
    told = jobs(program, store, *options)
    assert {one["tool"] for one in told} == {"triton"}
    return {
        name: sum(float(str(one[name])) for one in told) for name in ("hits", "misses", "bytes_used", "seconds_saved")
    }


def notes(store: Path) -> list[Path]:
    return list((store / "lanes").glob(f"*/{lane.USAGE}/{usage.STATS}*"))


def row(hits: int, scope: str = "main", day: int = TODAY) -> Stat:
    return Stat(day, scope, "triton", hits, 0, 10, 100)


def test_jobs_are_counted_as_they_were(program: Program, shared: Path) -> None:
    program.job(shared, "a", "b")
    program.job(shared, "a", "b", "c")
    program.job(shared, "a")
    told = counted(program, shared)
    assert (told["hits"], told["misses"]) == (3, 3)
    assert 0 < told["bytes_used"] <= 3 * report(program, shared, "a")["filled_bytes"]
    shown = program.ondol("store", "stats", "--store", str(shared)).stdout
    assert "seconds saved" in shown
    assert all(str(one["day"]) in shown for one in jobs(program, shared))


def report(program: Program, store: Path, *kernels: str) -> dict[str, int]:
    """What a job that reports nothing tells itself."""
    path = store.parent / "report.json"
    program.job(store, *kernels, options=("--json", str(path), "--publish", "never"))
    return dict(json.loads(path.read_text())["tools"]["triton"])


def test_seconds_are_those_of_the_job_itself(program: Program, shared: Path) -> None:
    """What compiling had cost by the publisher's own files; nothing is guessed."""
    program.job(shared, "a")
    path = shared.parent / "report.json"
    program.job(shared, "a", options=("--json", str(path)))
    saved = json.loads(path.read_text())["tools"]["triton"]["seconds_saved"]
    told = counted(program, shared)
    assert told["seconds_saved"] == round(saved * 1000) / 1000


def test_job_that_may_not_publish_reports_nothing(program: Program, shared: Path) -> None:
    program.job(shared, "a")
    program.job(shared, "a", options=("--publish", "never"))
    program.job(shared, "a", options=("--frozen",))
    told = counted(program, shared)
    assert (told["hits"], told["misses"]) == (0, 1)


@needs_root
@pytest.mark.root
def test_read_only_store_neither_fails_a_job_nor_counts_it(program: Program, shared: Path) -> None:
    program.job(shared, "a")
    (mine,) = (shared / "lanes").iterdir()
    mine.chmod(0o555)
    again = program.job(shared, "a", uid=STRANGER, options=("--trust", "0"))
    assert (again.status, again.hits) == (0, 1)
    (shared / "lanes").chmod(0o755)
    again = program.job(shared, "a", uid=STRANGER, options=("--trust", "0", "--room-dir", "/tmp"))
    assert (again.status, again.hits) == (0, 1)
    assert len(jobs(program, shared)) == 1


@needs_root
@pytest.mark.root
def test_stranger_is_not_believed(program: Program, shared: Path) -> None:
    program.job(shared, "a", uid=STRANGER)
    assert len(notes(shared)) == 1
    assert jobs(program, shared) == []
    assert counted(program, shared, "--trust", str(STRANGER))["misses"] == 1


def test_writer_of_other_scopes_only_is_not_believed(store: DirectoryStore) -> None:
    store.report([row(1), row(5, "pr-1")])
    careful = DirectoryStore(store.where, lambda _: lambda _uid, scope="": scope in ("", "pr-1"))
    assert careful.reports() == [row(5, "pr-1")]


HOSTILE = {
    "garbage": b"\xff\xfe\x00" * 100,
    "half": f"{TODAY}/main/triton/1/".encode(),
    "negative": f"{TODAY}/main/triton/-1/0/0/0".encode(),
    "superscript": f"{TODAY}/main/triton/²/0/0/0".encode(),
    "digits": f"{TODAY}/main/triton/{'9' * 5000}/0/0/0".encode(),
    "not a number": f"{TODAY}/main/triton/nan/0/0/inf".encode(),
    "names": f'{TODAY}/main/a"b\x1b[31m/1/0/0/0'.encode(),
    "tomorrow's week": f"{TODAY + 7}/main/triton/1/0/0/0".encode(),
    "last year": f"{TODAY - 365}/main/triton/1/0/0/0".encode(),
    "too long": b"x" * (1 << 20),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_note_that_makes_no_sense_is_not_counted(store: DirectoryStore, kind: str) -> None:
    store.report([row(1)])
    folder = next(Path(store.where).glob(f"lanes/*/{lane.USAGE}"))
    (folder / f"{usage.STATS}0").write_bytes(HOSTILE[kind])
    assert store.reports() == [row(1)]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_note_that_is_no_file_does_not_hold_the_command(store: DirectoryStore, program: Program, kind: str) -> None:
    store.report([row(1)])
    path = next(Path(store.where).glob(f"lanes/*/{lane.USAGE}")) / f"{usage.STATS}0"
    {"fifo": os.mkfifo, "link": lambda p: p.symlink_to("/dev/zero"), "directory": Path.mkdir}[kind](path)
    assert [told["hits"] for told in jobs(program, Path(store.where))] == [1]


def test_what_the_owner_of_a_lane_says_is_bounded(store: DirectoryStore) -> None:
    """Bounded in rows, in notes and in size, whatever is there."""
    store.report([row(1)])
    folder = next(Path(store.where).glob(f"lanes/*/{lane.USAGE}"))
    lines = "\n".join(f"{TODAY}/main/tool{number}/{10**17}/0/0/0" for number in range(10_000))
    for number in range(3):
        (folder / f"{usage.STATS}{number}").write_text(lines)
    found = store.reports()
    assert len(found) <= usage.ROWS
    assert max(one.hits for one in found) <= 4 * usage.LARGEST
    for number in range(1000):
        (folder / f"{usage.STATS}x{number}").write_text(f"{TODAY}/main/triton/1/0/0/0")
    assert sum(one.hits for one in store.reports() if one.tool == "triton") <= usage.REPORTS


def test_notes_do_not_gather_without_end(store: DirectoryStore) -> None:
    for _ in range(5 * usage.MANY):
        store.report([row(2)])
    assert len(notes(Path(store.where))) <= usage.MANY
    assert store.reports() == [Stat(TODAY, "main", "triton", 10 * usage.MANY, 0, 50 * usage.MANY, 500 * usage.MANY)]


def test_two_jobs_at_once_count_a_note_once(store: DirectoryStore) -> None:
    """All of them find many notes, and add them up."""
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                mine = DirectoryStore(store.where, trust_everybody)
                for _ in range(100):
                    mine.report([row(1)])
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    (told,) = store.reports()
    assert told.hits == 400


def test_job_that_dies_while_adding_up_counts_no_note_twice(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(usage.MANY):
        store.report([row(1)])

    def die(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_whole", die)
        store.report([row(1)])
    assert sum(one.hits for one in store.reports()) <= usage.MANY


def test_old_notes_go(store: DirectoryStore) -> None:
    store.report([row(1)])
    (note,) = notes(Path(store.where))
    old = time.time() - 100 * usage.DAY
    os.utime(note, (old, old))
    usage.forget(store.my_lane(), time.time())
    assert notes(Path(store.where)) == []


# -- for a collector ---------------------------------------------------------------------------------------------------


def test_collector_reads_what_was_counted(program: Program, shared: Path) -> None:
    program.job(shared, "a")
    program.job(shared, "a")
    page = shared.parent / "ondol.prom"
    page.write_text("old")
    page.chmod(0o600)
    done = program.ondol("store", "stats", "--store", str(shared), "--prometheus", str(page))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o644, "the collector is another user"
    found = {family.name: family for family in text_string_to_metric_families(page.read_text())}
    assert all(family.type == "gauge" and family.documentation for family in found.values())
    hits = found["ondol_store_hits"].samples  # one for each day
    assert sum(one.value for one in hits) == 1
    assert all({"store": str(shared), "tool": "triton"}.items() <= one.labels.items() for one in hits)
    assert found["ondol_store_entries"].samples[0].value == 1
    assert [path.name for path in page.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("place", ['/a "quoted" place', "/a\nline\\n", "/back\\slash\\", "/ünïcode", '/{x="y"} 1'])
def test_name_of_a_store_does_not_break_the_page(place: str) -> None:
    told = {"day": "2026-11-16", "tool": "triton", "hits": 3, "misses": 1, "bytes_used": 5, "seconds_saved": 1.25}
    facts = {"store": place, "entries": 1, "bytes": 2, "free_bytes": 3, "jobs": [told]}
    families = list(text_string_to_metric_families(store_page.metrics(facts)))
    samples = {sample.name: sample for family in families for sample in family.samples}
    assert {sample.labels["store"] for sample in samples.values()} == {place}
    assert samples["ondol_store_seconds_saved"].value == 1.25
    assert len(samples) == 7


def test_page_that_cannot_be_written_is_said_and_leaves_nothing_behind(program: Program, shared: Path) -> None:
    folder = shared.parent / "there"
    (folder / "ondol.prom").mkdir(parents=True)
    for path in (folder / "ondol.prom", shared.parent / "not-there" / "x.prom"):
        done = program.ondol("store", "stats", "--store", str(shared), "--prometheus", str(path))
        assert done.returncode != 0
        assert f"--prometheus {path} was not written" in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.name for path in folder.iterdir()] == ["ondol.prom"]
