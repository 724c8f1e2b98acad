"""Which processes share one room: the ranks of one job step on one node. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ondol.words import is_number

AUTO = "auto"
OFF = "off"


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
