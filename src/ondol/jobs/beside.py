"""Beside the command, at the lowest priority: publish what is whole while it runs.

A job that is cancelled, preempted or killed has then given what it made, and other nodes profit before it ends. Nothing
is published here that the end of the job would not publish: the same scan, the same rules, and stricter about time.
What cannot be told while somebody is at work (files changed in place, builds of many steps) is left to the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from ondol.errors import OndolError
from ondol.host import bounded, command, identity
from ondol.jobs import publish
from ondol.jobs.context import Context
from ondol.jobs.open_store import open_store
from ondol.jobs.publish import Outcome, Publisher
from ondol.light import Any
from ondol.room import harvest
from ondol.room.harvest import SETTLING
from ondol.tools import registry
from ondol.tools.api import Found
from ondol.tools.table import Row

#: Seconds between two looks at the room: at least this, and so many times what the last one cost.
PAUSE, LONGEST_PAUSE = 2.0, 60.0
_SHARE = 100
#: Seconds for which nobody has touched an entry that is taken. File systems' clocks are a few milliseconds late.
STILL = 1.0
_MEMORY = 2 << 30
#: The classes of tools whose entries are whole one by one (`tools/table`).
_CLASSES = "AB"


def start(job: Context) -> None:
    """Only for jobs that may publish however they end."""
    managed = [row for row in job.managed if row.sharing in _CLASSES]
    rule = job.settings.publish == "auto" and job.may_publish(status=0).publish
    if managed and rule and job.room and job.fills_room and not job.store_failure:
        job.beside = bounded.Helper(partial(_work, job, managed, time.time()), _MEMORY)


def stop(job: Context) -> dict[str, Outcome]:
    """What was published of each tool. Whatever went wrong, the end of the job tries again, and says so."""
    helper, job.beside = job.beside, None
    if helper is None:
        return {}
    try:
        return {name: Outcome(*fields) for name, fields in helper.stop(job.settings.store_timeout).items()}
    except bounded.TimedOut as error:
        job.store_failure = f"publishing beside the command got stuck: {error.line()}"
        job.report.warn(f"not everything was published to {job.store_path}: {error.line()}")
    except OndolError as error:
        job.report.remarks.append(f"nobody counts what was published while the command ran: {error.line()}")
    return {}


def _work(job: Context, managed: list[Row], began: float, wait: Callable[[float], bool]) -> Any:
    command.starting()  # in this process too: from now on nothing is imported that the command could have written
    tools = [_Tool(job, row, began) for row in managed]
    pause = PAUSE
    while not wait(pause):
        for tool in tools:
            try:
                tool.look(lambda: wait(0))
            except OndolError:
                tool.given_up = True
        pause = min(max(PAUSE, _SHARE * sum(tool.cost for tool in tools)), LONGEST_PAUSE)
    # What was refused and what went wrong meets the end of the job again, which says it once.
    return {tool.row.name: tuple(tool.total._replace(refused=(), trouble=None)) for tool in tools}


class _Tool:
    """One tool's cache while the command works in it."""

    def __init__(self, job: Context, row: Row, began: float) -> None:
        self.row = row
        self.total = Outcome()
        self.given_up = False
        #: Seconds of processor time that the last look took, without what was published.
        self.cost = 0.0
        self._job = job
        self._tool = registry.load(row)
        self._known = {(entry.fingerprint, entry.key) for entry in job.filled.get(row.name, [])}
        #: Everything that was still by then has been looked at.
        self._seen = began - SETTLING
        self._publisher: Publisher | None = None

    def look(self, stopped: Callable[[], bool]) -> None:
        """One look at what has changed since the last one."""
        if self.given_up:
            return
        now, before = time.time(), time.process_time()
        found, all_of_it = self._new(now)
        self.cost = time.process_time() - before
        for start in range(0, len(found), publish.PIECE):
            if stopped():
                return
            self._offer(found[start : start + publish.PIECE], now)
        if all_of_it:
            self._seen = now - SETTLING - STILL

    def _new(self, now: float) -> tuple[list[Found], bool]:
        """What may be published, and whether nothing waits for its time."""
        job, cache = self._job, self._job.cache(self.row)
        if cache.is_empty():
            return [], True
        # What has no manifest waits until nobody can be at it any more, whatever the journal says about who is.
        spans = [*job.cut_off(), (now - SETTLING, math.inf)]
        new = harvest.new_entries(self._tool, cache.recent(self._seen), self._known, job.host, spans)
        waiting = any(refused.kind == "cut-off" for refused in new.refused)
        return [item for item in new.found if job.takes(self.row, item.fingerprint)], not waiting

    def _offer(self, found: list[Found], now: float) -> None:
        job = self._job
        if self._publisher is None:
            origin = publish.provenance(job.env, identity.working_directory())
            store = open_store(job.settings)
            self._publisher = Publisher(store, self._tool, job.cache(self.row), job.scopes.write, origin, job.sign)
        outcome = self._publisher.offer(found, now - STILL)
        self.total += outcome
        self._known |= set(outcome.there)
        self.given_up = bool(outcome.trouble)
