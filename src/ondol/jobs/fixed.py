"""Tools whose caches only work at the path where they were made: at a fixed path, for this command alone, or cold.

Only for a job that names such a tool: the others never import this.
"""

from __future__ import annotations

from ondol.host import fixed_place, interpreter
from ondol.jobs.context import Context
from ondol.tools.table import Row


def arrange(job: Context, rows: list[Row]) -> dict[str, str]:
    """Where the command will see each of these tools' caches, whose directories are there already.

    Where namespaces are forbidden that is in the room: private, nothing filled, nothing published, and said once.
    """
    here = job.open_room()
    places = {row.name: here.cache_dir(row.name) for row in rows}
    why_not = fixed_place.why_not(places)
    if why_not:
        job.cold += rows
        names = ", ".join(places)
        job.report.remarks.append(f"{names}: private and cold, because fixed paths are not possible here: {why_not}")
    else:
        job.through = fixed_place.starter(places)
        places = {name: fixed_place.path(name) for name in places}
    return {row.name: _apart(job, row, places[row.name]) for row in rows}


def _apart(job: Context, row: Row, place: str) -> str:
    """With a directory for each version of what the tool's key forgets."""
    if not row.apart:
        return place
    return f"{place}/{interpreter.describe(job.program, job.env, row.apart)}"
