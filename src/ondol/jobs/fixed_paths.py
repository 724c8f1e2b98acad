"""Tools whose caches only work at the path where they were made: at a fixed path, for this command alone, or cold.

Only for a job that names such a tool: the others never import this.
"""

from __future__ import annotations

from ondol.host import fixed_place, interpreter
from ondol.jobs.job import Job
from ondol.tools.table import Row


def arrange(job: Job, rows: list[Row]) -> tuple[dict[str, str], list[Row], list[str]]:
    """(where the command will see each tool's cache, the tools that stay cold, the words that start the command)

    Their directories are there already. Where namespaces are forbidden the command sees those: private, nothing filled,
    nothing published, and said once.
    """
    here = job.open_room()
    places = {row.name: here.cache_dir(row.name) for row in rows}
    cold: list[Row] = []
    through: list[str] = []
    why_not = fixed_place.why_not(places)
    if why_not:
        cold, names = rows, ", ".join(places)
        job.report.remarks.append(f"{names}: private and cold, because fixed paths are not possible here: {why_not}")
    else:
        through = fixed_place.starter(places)
        places = {name: fixed_place.path(name) for name in places}
    return {row.name: _apart(job, row, places[row.name]) for row in rows}, cold, through


def _apart(job: Job, row: Row, place: str) -> str:
    """With a directory for each version of what the tool's key forgets."""
    if not row.apart:
        return place
    return f"{place}/{interpreter.describe(job.program, job.env, row.apart)}"
