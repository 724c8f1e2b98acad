"""Many ranks on one node: one room, filled once, published once, and nobody waits for somebody who is dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ondol.errors import RoomError
from ondol.room import rendezvous
from ondol.room.choose import share_key
from people import Program, needs_root
from walls.rooms import rooms_in, standin, titles

RANKS = 16
#: Each rank says which room it has, then waits until all have said so: none is over before the last has begun.
TOGETHER = """
printf '%s %s\\n' "$ONDOL_ROOM" "$TMPDIR" > "$MEET/.$RANK"; mv "$MEET/.$RANK" "$MEET/$RANK"
all_here() { set -- "$MEET"/*; [ $# -ge "$RANKS" ]; }
until all_here; do sleep 0.05; done
"$@"
"""


def slurm(rank: int, ranks: int = RANKS) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": f"{ranks}",
    }


class Ranks:
    """Ranks of one step, started together."""

    def __init__(self, program: Program, store: Path, place: Path) -> None:
        self.program, self.store, self.place = program, store, place
        self.meet = place / "meet"
        self.meet.mkdir()
        self.base = place / "rooms"
        self.base.mkdir()

    def start(
        self, rank: int, *command: str, ranks: int = RANKS, options: tuple[str, ...] = (), code: str = "", **env: str
    ) -> subprocess.Popen[str]:
        start = [self.program.python, "-c", code + _RUN] if code else [self.program.python, "-m", "ondol"]
        words = ["run", "--store", str(self.store), "--tools", "triton", "--room-dir", str(self.base), *options, "--"]
        variables = {**slurm(rank, ranks), "MEET": str(self.meet), "RANK": str(rank), "RANKS": str(ranks), **env}
        return subprocess.Popen(
            [*start, *words, *command],
            env=self.program.env(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rooms(self) -> list[list[str]]:
        return [path.read_text().split() for path in sorted(self.meet.iterdir())]


#: A rank that is killed tells nobody what it published beside its command: who counts lets the last one publish all.
NOTHING_BESIDE = """
from ondol.jobs import beside
beside.start = lambda job: None
"""
#: It looks more often than it does for people.
SOON = """
from ondol.jobs import beside
beside.PAUSE, beside.STILL = 0.02, 0.05
"""
_RUN = """
from ondol.cli.main import main
import sys
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def reaped(*running: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in running:
            one.kill()
            for stream in (one.stdin, one.stdout, one.stderr):
                if stream:
                    stream.close()
            one.wait()


@pytest.fixture
def ranks(program: Program, shared_store: Path, place: Path) -> Ranks:
    return Ranks(program, shared_store, place)


def finish(*running: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    ended = [(*one.communicate(timeout=120), one.returncode) for one in running]
    return [(status, out, err) for out, err, status in ended]


def test_sixteen_ranks_fill_one_room(ranks: Ranks, program: Program) -> None:
    program.job(ranks.store, "warm")
    # A kernel of its own for each: the stand-in makes other bytes every time, and two that race for one would mix them.
    command = ["sh", "-c", f'{TOGETHER.rstrip()} "new-$RANK"', "sh", *standin(program, "warm")]
    ended = finish(*[ranks.start(rank, *command) for rank in range(RANKS)])
    assert [status for status, _, _ in ended] == [0] * RANKS, ended
    told = ranks.rooms()
    assert len({room for room, _ in told}) == 1, [err for _, _, err in ended]
    assert len({tmp for _, tmp in told}) == RANKS  # fixed names in TMPDIR must not collide
    assert sum("fill 0.00 s" not in err for _, _, err in ended if "filled" in err) <= 1
    assert sum(f"{RANKS} new, {RANKS} published" in err for _, _, err in ended) == 1, [err for _, _, err in ended]
    assert sum("the last rank on this node" in err for _, _, err in ended) == RANKS - 1
    assert all(json.loads(out)["hits"] >= 1 for _, out, _ in ended)
    assert titles(ranks.store) == {"warm", *(f"new-{rank}" for rank in range(RANKS))}
    assert list(ranks.base.iterdir()) == []


def test_last_rank_counts_what_another_one_published_beside_its_command(ranks: Ranks, program: Program) -> None:
    """It used to say "1 new, 0 published" of a kernel that everybody has."""
    until_stored = 'until find "$STORE/lanes" -name "*.pack" | grep -q .; do sleep 0.05; done'
    makes = ["sh", "-c", f"{TOGETHER}\n{until_stored}", "sh", *standin(program, "made")]
    waits = ["sh", "-c", TOGETHER, "sh", "sh", "-c", "read line"]
    first = ranks.start(0, *makes, ranks=2, code=SOON, STORE=str(ranks.store))
    last = ranks.start(1, *waits, ranks=2, code=SOON, STORE=str(ranks.store))
    with reaped(first, last):
        [(status, out, err)] = finish(first)
        assert status == 0, out + err
        assert "the last rank on this node" in err
        out, err = last.communicate("go\n", timeout=120)
        assert last.returncode == 0, out + err
    assert "1 new, 1 published" in err


@pytest.mark.parametrize(
    ("version", "options", "rooms"), [("3.1.0", (), 3), ("3.1.0", ("--share", "all"), 1), ("3.2.0", (), 1)]
)
def test_ranks_of_a_racing_triton_do_not_share_a_directory(
    ranks: Ranks, program: Program, place: Path, version: str, options: tuple[str, ...], rooms: int
) -> None:
    """Before 3.2 two of its processes can lose each other's temporary files: each rank gets a room, which is said once."""
    metadata = place / "site" / f"triton-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    path = os.pathsep.join([str(place / "site"), *program.path])
    command = ["sh", "-c", TOGETHER, "sh", "true"]
    ended = finish(*[ranks.start(n, *command, ranks=3, options=options, PYTHONPATH=path) for n in range(3)])
    assert [status for status, _, _ in ended] == [0] * 3, ended
    assert len({room for room, _ in ranks.rooms()}) == rooms
    assert sum(f"Triton {version}" in err for _, _, err in ended) == (rooms == 3)


def test_first_rank_killed_while_filling_does_not_hold_the_others(ranks: Ranks, program: Program) -> None:
    """It holds the lock; its helper lives on. The kernel lets go for it, and the next one fills anew."""
    code = """
import os, signal
from ondol.jobs import before
def fill_for_ever(job):
    helper = os.fork()
    if helper:
        print(helper, flush=True)
    signal.pause()
before._fill = fill_for_ever
"""
    program.job(ranks.store, "warm")
    first = ranks.start(0, "true", ranks=3, code=code)
    assert first.stdout is not None
    with reaped(first):
        helper = int(first.stdout.readline())
        others = [ranks.start(rank, *standin(program, "warm"), ranks=3) for rank in (1, 2)]
        first.kill()
        for status, out, err in finish(*others):
            assert (status, json.loads(out)["hits"]) == (0, 1), err
        os.kill(helper, signal.SIGKILL)


def test_rank_that_holds_the_lock_for_ever_does_not_hold_the_others(ranks: Ranks, program: Program) -> None:
    """After a bounded time a rank has a room of its own, and says so."""
    program.job(ranks.store, "warm")
    hold = """
import signal
from ondol.jobs import before
before._fill = lambda job: (print("filling", flush=True), signal.pause())
"""
    impatient = "from ondol.jobs import sharing\nsharing._MARGIN = 0.1 - 120\n"  # and has all its time for the store
    first = ranks.start(0, "true", ranks=2, code=hold)
    assert first.stdout is not None
    with reaped(first):
        assert first.stdout.readline() == "filling\n"
        second = ranks.start(1, *standin(program, "warm"), ranks=2, code=impatient)
        ((status, out, err),) = finish(second)
        assert (status, json.loads(out)["hits"]) == (0, 1), err
        assert "this rank has a room of its own" in err


@pytest.mark.parametrize("statuses", [(0, 3), (3, 0)], ids=["last fails", "last succeeds"])
def test_half_a_job_is_not_published(ranks: Ranks, program: Program, statuses: tuple[int, int]) -> None:
    """`on-success`: one rank failed, another did not, and the job as a whole did not succeed."""
    options = ("--publish", "on-success")
    wait = 'until [ -e "$MEET/go" ]; do sleep 0.05; done; exit {}'
    waiting = f"{TOGETHER}\n{wait.format(statuses[1])}"
    last = ranks.start(1, "sh", "-c", waiting, "sh", "true", ranks=2, options=options)
    with reaped(last):
        command = [*standin(program, "one")]
        script = f"{TOGETHER}\nexit {statuses[0]}"
        ((status, _, err),) = finish(ranks.start(0, "sh", "-c", script, "sh", *command, ranks=2, options=options))
        assert status == statuses[0], err
        (ranks.meet / "go").touch()
        ((status, _, err),) = finish(last)
    assert status == statuses[1]
    assert "0 published (on-success: the command ended with status 3)" in err
    assert titles(ranks.store) == set()
    assert list(ranks.base.iterdir()) == []


def test_rank_that_vanishes_is_not_waited_for_and_costs_the_others_nothing(ranks: Ranks, program: Program) -> None:
    """Its Ondol is killed, its command lives on in the room: the last one publishes and leaves it; a later job sweeps."""
    wait = 'until [ -e "$MEET/go" ]; do sleep 0.05; done'
    alone: dict[str, Any] = {"ranks": 2, "code": NOTHING_BESIDE}
    lost = ranks.start(0, "sh", "-c", f"{TOGETHER}\necho in; read line", "sh", "true", **alone)
    last = ranks.start(1, "sh", "-c", f"{TOGETHER}\n{wait}", "sh", *standin(program, "one"), **alone)
    assert lost.stdin is not None
    assert lost.stdout is not None
    with reaped(lost, last):
        assert lost.stdout.readline() == "in\n"
        lost.kill()
        lost.wait()
        (ranks.meet / "go").touch()
        ((status, _, err),) = finish(last)
        assert status == 0
        assert "1 rank vanished" in err
        assert "1 new, 1 published" in err
        assert len(rooms_in(ranks.base)) == 1
        lost.stdin.close()
        lost.stdout.read()  # the command is over
    assert titles(ranks.store) == {"one"}
    program.job(ranks.store, "later", options=("--room-dir", str(ranks.base)))
    assert rooms_in(ranks.base) == []


def test_ranks_of_different_jobs_do_not_meet(ranks: Ranks, program: Program) -> None:
    """Another step, another store, another scope, or no wish to share: a room of one's own."""
    other = ranks.place / "other"
    assert program.ondol("store", "init", str(other)).returncode == 0
    variants: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((), {}),
        ((), {"SLURM_STEP_ID": "1"}),
        (("--store", str(other)), {}),
        (("--scope", "mine"), {}),
        (("--share", "off"), {}),
        (("--share", "us"), {}),
    ]
    running = [
        ranks.start(n, "sh", "-c", TOGETHER, "sh", "true", options=options, **{**env, "RANKS": str(len(variants))})
        for n, (options, env) in enumerate(variants)
    ]
    assert [status for status, _, _ in finish(*running)] == [0] * len(variants)
    assert len({room for room, _ in ranks.rooms()}) == len(variants)
    assert list(ranks.base.iterdir()) == []


def test_variables_that_a_site_unsets_do_not_break_the_way_out(ranks: Ranks, program: Program) -> None:
    """The script unsets every SLURM variable for what it starts; Ondol read them when it began."""
    script = f"for name in $(env | sed -n 's/^\\(SLURM[A-Z_]*\\)=.*/\\1/p'); do unset $name; done\n{TOGETHER}"
    command = ["sh", "-c", script, "sh", *standin(program, "one")]
    ended = finish(*[ranks.start(rank, *command, ranks=2) for rank in range(2)])
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert len({room for room, _ in ranks.rooms()}) == 1
    assert titles(ranks.store) == {"one"}


def meetings(base: Path) -> list[Path]:
    return [path for path in base.iterdir() if path.name.startswith("ondol-meet-")]


@needs_root
@pytest.mark.root
def test_meeting_place_that_somebody_planted_is_not_used(ranks: Ranks, program: Program) -> None:
    """Its name can be guessed and its parent is /tmp: whose it is decides."""
    hold = "import ondol.jobs.sharing as s\ns.leave = lambda job, status: (setattr(job.shared, 'left', True), job.let_go_of_room())[1]\n"
    assert finish(ranks.start(0, "true", ranks=2, code=hold))[0][0] == 0
    (path,) = meetings(ranks.base)
    os.chown(path, 1234, 1234)
    ((status, out, err),) = finish(ranks.start(1, *standin(program, "one"), ranks=2))
    assert status == 0, err
    assert "is not a private file of uid" in err
    assert json.loads(out)["compiled"] == 1


def test_meeting_place_that_is_swept_at_its_birth_sends_no_rank_away(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making it and having its lock: another rank finds it empty, and removes it. Twice, then not."""
    whole = rendezvous._wait_for
    swept: list[str] = []

    def sweep_first(lock: int, path: str, deadline: float) -> None:
        if len(swept) < 2:
            swept.append(path)
            os.unlink(path)
        whole(lock, path, deadline)

    monkeypatch.setattr(rendezvous, "_wait_for", sweep_first)
    with rendezvous.meet(str(place), "0" * 32, 5.0) as met:
        assert met.found() is None
    assert len(swept) == 2
    with pytest.raises(RoomError, match="where ranks meet"):
        rendezvous.meet(str(place / "not-there"), "0" * 32, 5.0)


def test_meeting_places_of_the_dead_go(ranks: Ranks, program: Program) -> None:
    hold = "import ondol.jobs.sharing as s\ns.leave = lambda job, status: (setattr(job.shared, 'left', True), job.let_go_of_room())[1]\n"
    assert finish(ranks.start(0, "true", ranks=2, code=hold))[0][0] == 0
    assert len(meetings(ranks.base)) == 1
    rendezvous.sweep(str(ranks.base))
    assert meetings(ranks.base) == []


@pytest.mark.parametrize(
    ("configured", "changes", "key"),
    [
        ("auto", {}, "slurm 77.0"),
        ("off", {}, ""),
        ("mine", {}, "name mine"),
        ("auto", {"SLURM_STEP_TASKS_PER_NODE": "1"}, ""),
        ("auto", {"SLURM_STEP_TASKS_PER_NODE": "4(x2),1", "SLURM_NODEID": "1"}, "slurm 77.0"),
        ("auto", {"SLURM_STEP_TASKS_PER_NODE": "4(x2),1", "SLURM_NODEID": "2"}, ""),
        ("auto", {"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "3"}, ""),
        ("auto", {"SLURM_STEP_TASKS_PER_NODE": "many(xx)"}, ""),
        ("auto", {"SLURM_STEP_TASKS_PER_NODE": "9(x99999999999)"}, "slurm 77.0"),
        ("auto", {"SLURM_STEP_ID": ""}, ""),
        ("auto", {"SLURM_LOCALID": ""}, ""),
    ],
)
def test_ranks_are_recognised(configured: str, changes: dict[str, str], key: str) -> None:
    assert share_key(configured, {**slurm(0), **changes}) == key
