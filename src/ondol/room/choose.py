"""Which directory the room goes into (candidates with what trying them showed, in order; one choice out), and which
processes share it: the ranks of one job step on one node. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ondol.errors import RoomError
from ondol.foreign_text import is_number

AUTO = "auto"
OFF = "off"


class Candidate(NamedTuple):
    path: str
    #: `--room-dir`, `TMPDIR` …: where the path came from.
    source: str


class RoomChoice(NamedTuple):
    candidate: Candidate
    #: Those before it and why they were passed over.
    passed: tuple[tuple[Candidate, str], ...]


def candidates(configured: str, env: Mapping[str, str]) -> list[Candidate]:
    """In order of preference; each path once; relative paths are nobody's intention."""
    offers = [Candidate(configured, "--room-dir")]
    offers += [Candidate(env.get(name, ""), name) for name in ("SLURM_TMPDIR", "RUNNER_TEMP", "TMPDIR")]
    offers += [Candidate("/tmp", "default"), Candidate("/var/tmp", "default")]
    first: dict[str, Candidate] = {}
    for offer in offers:
        first.setdefault(offer.path, offer)
    return [offer for offer in first.values() if offer.path]


def choose(offers: Iterable[Candidate], is_network: Callable[[str], bool], why_not: Callable[[str], str]) -> RoomChoice:
    """The first local one that works; if none is local, the first that works at all.

    `why_not` tries a directory for real; it is not asked about one on a network before all local ones have failed,
    because a dead server never answers.
    """
    passed: list[tuple[Candidate, str]] = []
    distant: list[Candidate] = []
    for offer in offers:
        if not offer.path.startswith("/"):
            passed.append((offer, "not an absolute path"))
        elif is_network(offer.path):
            distant.append(offer)
        elif reason := why_not(offer.path):
            passed.append((offer, reason))
        else:
            return RoomChoice(offer, (*passed, *((other, "on a network file system") for other in distant)))
    for offer in distant:
        if not (reason := why_not(offer.path)):
            return RoomChoice(offer, tuple(passed))
        passed.append((offer, reason))
    raise RoomError(
        "no directory on this machine can hold a room",
        because="; ".join(f"{offer.path}: {why}" for offer, why in passed),
        hint="name a writable, executable directory with --room-dir",
    )


def share_key(configured: str, env: Mapping[str, str]) -> str:
    """A name that exactly the ranks of one step have in common; empty for a room of one's own.

    Read once, when Ondol starts: sites are known to unset Slurm's variables in the script that it then runs.
    """
    if configured == OFF:
        return ""
    if configured != AUTO:
        return f"name {configured}"
    job, step = env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", "")
    # Only srun sets the step's own table: a batch script has the job's, and is one process all the same.
    tasks = _tasks_here(env.get("SLURM_STEP_TASKS_PER_NODE", ""), env.get("SLURM_NODEID", ""))
    return f"slurm {job}.{step}" if job and step and env.get("SLURM_LOCALID") and tasks > 1 else ""


def _tasks_here(table: str, node: str) -> int:
    """`4(x2),3` and node 2: 3. Zero for anything else."""
    counts: list[int] = []
    for part in table.split(","):
        count, _, times = part.removesuffix(")").partition("(x")
        if not is_number(count) or (times and not is_number(times)) or len(counts) > 100_000:
            return 0
        counts += [int(count)] * min(int(times or 1), 100_000)
    return counts[int(node)] if is_number(node) and int(node) < len(counts) else 0
