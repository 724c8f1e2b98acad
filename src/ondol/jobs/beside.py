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
from ondol.host import bounded
from ondol.jobs import before, maker
from ondol.jobs.job import Job
from ondol.jobs.open_store import open_store
from ondol.room import fill, harvest
from ondol.room.harvest import SETTLING
from ondol.room.publish import Publisher, PublishResult
from ondol.store.entry import Address
from ondol.tools import registry
from ondol.tools.api import Found
from ondol.tools.table import ONE_BY_ONE, Row

#: Seconds between two looks at the room: at least this, and so many times what the last one cost.
PAUSE, LONGEST_PAUSE = 2.0, 60.0
_SHARE = 200
#: A command that is over by then does not wait for entries that it never asked for.
_BEFORE_FILLING = 0.2
#: Seconds for which nobody has touched an entry that is taken. File systems' clocks are a few milliseconds late.
STILL = 1.0
_MEMORY = 2 << 30
#: Entries that are filled or given between two questions whether to stop: on a busy machine the lowest priority gets a
#: hundredth of a processor, and whoever asks us to stop waits for these.
_AT_A_TIME = 4
#: By tool: what was published of it, and filled.
_Answers = dict[str, tuple[PublishResult, fill.FillResult]]


def start(job: Job) -> None:
    """Only for jobs that may publish however they end."""
    managed = [row for row in job.managed if row.sharing in ONE_BY_ONE]
    gives = job.settings.publish == "auto" and job.may_publish(status=0).publish
    # Beside a job that measures nothing works: the processor is the command's.
    wanted = managed and (gives or job.fills_beside) and not job.measures
    if wanted and job.room and job.fills_room and not job.store_failure:
        job.work_beside(partial(_work, job, managed, time.time(), gives), _MEMORY)


def stop(job: Job) -> dict[str, PublishResult]:
    """What was published of each tool. Whatever went wrong, the end of the job tries again, and says so."""
    try:
        answers: _Answers = job.stop_beside() or {}
    except bounded.TimedOut as error:
        job.lose_store(f"publishing beside the command got stuck: {error.line()}")
        job.report.warn(f"not everything was published to {job.store_path}: {error.line()}")
        return {}
    except OndolError as error:
        job.report.remarks.append(f"what was published while the command ran is not counted here: {error.line()}")
        return {}
    for name, (_, filled) in answers.items():
        before.take(job, name, filled)
    return {name: given for name, (given, _) in answers.items()}


def _work(job: Job, managed: list[Row], began: float, gives: bool, wait: Callable[[float], bool]) -> _Answers:
    tools = [_Tool(job, row, began) for row in managed]
    pause = _BEFORE_FILLING if job.fills_beside else PAUSE
    noted: set[Address] = set()
    while not wait(pause):
        for tool in tools:
            try:
                tool.fill(lambda: wait(0))
                if gives:
                    tool.look(lambda: wait(0))
            except OndolError:
                tool.given_up = True
        if gives:
            noted = _note_use(job, tools, noted)
        pause = min(max(PAUSE, _SHARE * sum(tool.cost for tool in tools)), LONGEST_PAUSE)
    # What was refused and what went wrong meets the end of the job again, which says it once.
    return {tool.row.name: (tool.total._replace(refused=(), trouble=None), tool.filled) for tool in tools}


def _note_use(job: Job, tools: list[_Tool], noted: set[Address]) -> set[Address]:
    """A job that is killed tells nobody what it used: the next one of its name would not get it first.

    Beside what the last one noted, which did not end so early perhaps.
    """
    needed = {address for tool in tools for address in tool.needed}
    try:
        if not needed <= noted:
            store = open_store(job.settings)
            store.note_use(needed | store.uses_of(job.name), job.name)
    except OndolError:
        pass  # whoever publishes says so
    return needed | noted


class _Tool:
    """One tool's cache while the command works in it."""

    def __init__(self, job: Job, row: Row, began: float) -> None:
        self.row = row
        self.total = PublishResult()
        self.given_up = False
        #: What a job like this one will need.
        self.needed: set[Address] = set()
        #: Seconds of processor time that the last look took, without what was published.
        self.cost = 0.0
        self._job = job
        self._tool = registry.load(row)
        self._known = {entry.address[2:] for entry in job.filled.get(row.name, [])}
        #: Everything that was still by then has been looked at.
        self._seen = began - SETTLING
        self._publisher: Publisher | None = None
        self.filled = fill.FillResult()
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
        self.filled = fill.FillResult(left_out=left_out)
        left = [one for one in (*first, *later) if one[0].address[2:] not in self._known]
        for start in range(0, len(left), _AT_A_TIME):
            if stopped():
                return
            done = fill.fill_piece(store, self._tool, left[start : start + _AT_A_TIME], cache, stage, late=True)
            self.filled += done
            self._known |= {entry.address[2:] for entry in done.filled}
            if done.stopped:
                return

    def look(self, stopped: Callable[[], bool]) -> None:
        """One look at what has changed since the last one."""
        if self.given_up:
            return
        now, before = time.time(), time.process_time()
        found, all_of_it = self._new(now)
        self._note_used()
        self.cost = time.process_time() - before
        for start in range(0, len(found), _AT_A_TIME):
            if stopped():
                return
            self._offer(found[start : start + _AT_A_TIME], now)
        if all_of_it:
            self._seen = now - SETTLING - STILL

    def _note_used(self) -> None:
        job, name = self._job, self.row.name
        there = [*job.filled.get(name, ()), *self.filled.filled]
        seen = harvest.usage(job.cache(self.row), there, keeps_atime=job.open_room().keeps_atime)
        self.needed |= {entry.address for entry in seen.used}

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
            store, origin = open_store(job.settings), maker.provenance(job.env)
            self._publisher = Publisher(store, self._tool, job.cache(self.row), job.scopes.write, origin, job.sign)
        outcome = self._publisher.offer(found, now - STILL)
        self.total += outcome
        self._known |= set(outcome.there)
        self.needed |= {Address(job.scopes.write, self.row.name, *key) for key in outcome.there}
        self.given_up = bool(outcome.trouble)
