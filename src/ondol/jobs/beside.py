"""Beside the command, at the lowest priority: fill the rest of the room, and publish what is whole while it runs.

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
from ondol.host import bounded, command
from ondol.jobs import before, provenance
from ondol.jobs.before import Fill
from ondol.jobs.job import Job
from ondol.jobs.open_store import open_store
from ondol.light import Record
from ondol.room import fill, harvest, publish
from ondol.room.harvest import SETTLING
from ondol.room.publish import Outcome, Publisher
from ondol.tools import registry
from ondol.tools.api import Found
from ondol.tools.table import ONE_BY_ONE, Row

#: Seconds between two looks at the room: at least this, and so many times what the last one cost.
PAUSE, LONGEST_PAUSE = 2.0, 60.0
_SHARE = 100
#: Seconds for which nobody has touched an entry that is taken. File systems' clocks are a few milliseconds late.
STILL = 1.0
_MEMORY = 2 << 30


def start(job: Job) -> None:
    """Only for jobs that may publish however they end."""
    managed = [row for row in job.managed if row.sharing in ONE_BY_ONE]
    gives = job.settings.publish == "auto" and job.may_publish(status=0).publish
    # Beside a job that measures nothing works: the processor is the command's.
    wanted = managed and (gives or job.fills_beside) and not job.measures
    if wanted and job.room and job.fills_room and not job.store_failure:
        job.work_beside(partial(_work, job, managed, time.time(), gives), _MEMORY)


class Done(Record):
    """What became of one tool's cache while the command ran."""

    given: Outcome
    fill: Fill


def stop(job: Job) -> dict[str, Outcome]:
    """What was published of each tool. Whatever went wrong, the end of the job tries again, and says so."""
    try:
        answers: dict[str, Done] = job.stop_beside() or {}
    except bounded.TimedOut as error:
        job.lose_store(f"publishing beside the command got stuck: {error.line()}")
        job.report.warn(f"not everything was published to {job.store_path}: {error.line()}")
        return {}
    except OndolError as error:
        job.report.remarks.append(f"nobody counts what was published while the command ran: {error.line()}")
        return {}
    for name, done in answers.items():
        before.take(job, name, done.fill)
    return {name: done.given for name, done in answers.items()}


def _work(job: Job, managed: list[Row], began: float, gives: bool, wait: Callable[[float], bool]) -> dict[str, Done]:
    command.starting()  # in this process too: from now on nothing is imported that the command could have written
    tools = [_Tool(job, row, began) for row in managed]
    pause = 0.0 if job.fills_beside else PAUSE
    while not wait(pause):
        for tool in tools:
            try:
                tool.fill(lambda: wait(0))
                if gives:
                    tool.look(lambda: wait(0))
            except OndolError:
                tool.given_up = True
        pause = min(max(PAUSE, _SHARE * sum(tool.cost for tool in tools)), LONGEST_PAUSE)
    # What was refused and what went wrong meets the end of the job again, which says it once.
    return {tool.row.name: Done(tool.total._replace(refused=(), trouble=None), tool.filled) for tool in tools}


class _Tool:
    """One tool's cache while the command works in it."""

    def __init__(self, job: Job, row: Row, began: float) -> None:
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
        self.filled = Fill(fill.Result())
        self._to_fill = row.name in job.fills_beside

    def fill(self, stopped: Callable[[], bool]) -> None:
        """Once: what the room did not get before the command started. What comes too late is a miss."""
        if not self._to_fill:
            return
        self._to_fill = False
        job, row, stage = self._job, self.row, self._job.open_room().stage
        store, cache = open_store(job.settings), job.cache(row)
        index = store.index(row.name, job.scopes.read)
        first, later, left_out, _ = before.choose_entries(job, store, row, index)
        self.filled = Fill(fill.Result(), left_out)
        left = [one for one in (*first, *later) if (one[0].address.fingerprint, one[0].address.key) not in self._known]
        for start in range(0, len(left), fill.PIECE):
            if stopped():
                return
            done = fill.fill_piece(store, self._tool, left[start : start + fill.PIECE], cache, stage, late=True)
            self.filled = Fill(self.filled.result + done, left_out)
            self._known |= {(entry.fingerprint, entry.key) for entry in done.filled}
            if done.stopped:
                return

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
            store, origin = open_store(job.settings), provenance.of_job(job.env)
            self._publisher = Publisher(store, self._tool, job.cache(self.row), job.scopes.write, origin, job.sign)
        outcome = self._publisher.offer(found, now - STILL)
        self.total += outcome
        self._known |= set(outcome.there)
        self.given_up = bool(outcome.trouble)
