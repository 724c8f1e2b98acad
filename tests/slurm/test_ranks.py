"""`ondol run` under a real `srun`: sixteen ranks on three nodes, one room per node."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.store import marker
from people import Program
from slurm.cluster import Cluster, wait_for
from walls.rooms import rooms_in, standin, titles

pytestmark = [pytest.mark.real, pytest.mark.root]

RANKS = 16
#: As a site's script: Slurm's variables go before the work begins. Each rank says where it is, and waits to be let go on.
WORK = """
node=$SLURMD_NODENAME rank=$SLURM_PROCID
for name in $(env | sed -n 's/^\\(SLURM[A-Z_]*\\)=.*/\\1/p'); do unset $name; done
printf '%s %s %s %s\\n' "$node" "$ONDOL_ROOM" "$TMPDIR" "$PPID" > "$MEET/.$rank"; mv "$MEET/.$rank" "$MEET/$rank"
until [ -e "$MEET/go" ]; do sleep 0.05; done
"$@" "new-$rank"
"""
UNSET = [
    f"--unset={name}" for name in ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_LOCALID", "SLURM_NODEID")
]


class Step:
    """One `srun`; every node has a local disk of its own."""

    def __init__(self, program: Program, cluster: Cluster, place: Path) -> None:
        self._program, self._cluster = program, cluster
        self._running: list[subprocess.Popen[str]] = []
        self.store, self.meet, self.disks = place / "store", place / "meet", place / "disks"
        marker.create(str(self.store), marker.Writers(), shared=True)
        program.job(self.store, "warm")
        for folder in (self.meet, *(self.disks / node for node in cluster.nodes)):
            folder.mkdir(parents=True)

    def start(self, before: list[str], *options: str) -> subprocess.Popen[str]:
        words = [*before, self._program.python, "-m", "ondol", "run", "--store", str(self.store), "--tools", "triton"]
        words += [*options, "--", "sh", "-c", WORK, "sh", *standin(self._program, "warm")]
        local = 'ONDOL_ROOM_DIR="$DISKS/$SLURMD_NODENAME" exec "$@"'
        step = ["srun", "--nodes=3", f"--ntasks={RANKS}", "--overcommit", "sh", "-c", local, "sh", *words]
        env = {**self._program.env(MEET=str(self.meet), DISKS=str(self.disks)), **self._cluster.environment}
        running = subprocess.Popen(step, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._running.append(running)
        return running

    def end(self) -> None:
        """After a failure, too."""
        (self.meet / "go").touch()
        for running in self._running:
            running.kill()
            running.communicate()

    def told(self) -> list[list[str]]:
        """Node, room, TMPDIR and Ondol's PID, of each rank that is there."""
        return [path.read_text().split() for path in self.meet.glob("[0-9]*")]


@pytest.fixture
def step(program: Program, cluster: Cluster, tmp_path: Path) -> Iterator[Step]:
    made = Step(program, cluster, tmp_path)
    yield made
    made.end()


def finish(step: Step, running: subprocess.Popen[str]) -> tuple[int, str, str]:
    (step.meet / "go").touch()
    out, err = running.communicate(timeout=120)
    return running.returncode, out, err


@pytest.mark.parametrize(
    ("before", "options"), [([], []), (["env", *UNSET], ["--share", "us"])], ids=["recognised", "named"]
)
def test_ranks_of_a_step_fill_and_publish_once_per_node(
    step: Step, cluster: Cluster, before: list[str], options: list[str]
) -> None:
    running = step.start(before, *options)
    assert wait_for(lambda: len(step.told()) == RANKS, 120), cluster.logs()
    rooms = {(node, room) for node, room, _, _ in step.told()}
    assert sorted(node for node, _ in rooms) == cluster.nodes, "one room per node"
    assert all(room.startswith(f"{step.disks / node}/") for node, room in rooms)
    assert len({tmp for _, _, tmp, _ in step.told()}) == RANKS
    status, out, err = finish(step, running)
    assert (status, out.count('"hits": ')) == (0, RANKS), err
    assert err.count("1 filled, 1 used") == len(cluster.nodes), err
    assert err.count("the last rank on this node harvests and publishes") == RANKS - len(cluster.nodes), err
    assert titles(step.store) == {"warm", *(f"new-{rank}" for rank in range(RANKS))}
    assert not [path for node in cluster.nodes for path in (step.disks / node).iterdir()]


@pytest.mark.fault
def test_a_rank_that_is_killed_does_not_cost_the_others_their_work(step: Step, cluster: Cluster) -> None:
    running = step.start([])
    assert wait_for(lambda: len(step.told()) == RANKS, 120), cluster.logs()
    on_n2 = [path for path in step.meet.glob("[0-9]*") if path.read_text().startswith("n2 ")]
    assert len(on_n2) > 2
    os.kill(int(on_n2[0].read_text().split()[3]), signal.SIGKILL)
    status, _, err = finish(step, running)
    assert status == 128 + signal.SIGKILL, err
    others = {f"new-{rank}" for rank in range(RANKS)} - {f"new-{on_n2[0].name}"}
    assert others <= titles(step.store), err
    assert err.count("1 rank vanished") == 1, err
    assert all(rooms_in(step.disks / node) == [] for node in ("n1", "n3"))
