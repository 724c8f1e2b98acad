"""`ondol open` and `ondol close`: a job whose command somebody else runs, in a container or over several CI steps.

They are the two halves of `jobs/run_command`, with the note of `room/note` between them. Whatever decides about trust
is fixed when the room is opened, before any of the job's code runs, or read again from outside the room when it is
closed; nothing inside the room is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from ondol import config, exitcodes
from ondol.config import Settings, Value
from ondol.errors import RoomError, UsageError
from ondol.events import JobReport, ToolReport
from ondol.jobs import after
from ondol.jobs.context import Progress
from ondol.jobs.run_command import Interrupted, Job, signals_raise
from ondol.light import Any, Record
from ondol.room import note, wall
from ondol.room.fill import Filled
from ondol.room.room import Room
from ondol.room.wall import Wall
from ondol.tools import registry, table
from ondol.trust import policy
from ondol.words import is_number

#: What a CI system may say instead of a status.
STATUS_WORDS = {
    "success": 0,
    "failure": 1,
    "failed": 1,
    "unstable": 1,
    "aborted": 130,
    "cancelled": 130,
    "canceled": 130,
}


class Opened(Record):
    report: JobReport
    #: None if there is no room: the job runs as it would without us.
    room: Room | None
    status: int


def open_room(settings: Settings, env: Mapping[str, str], progress: Progress, how: Wall) -> Opened:
    """Open a room and fill it; it stays when we end. Raises `UsageError` if it cannot be given to that user at all."""
    rights = wall.rights(how, os.geteuid())
    job = Job(["ondol", "open"], settings, env if how.inherits else _without_tools(env), progress)
    job.context.at = how.at
    with signals_raise() as signals:
        try:
            ready = job.open()
            room = job.context.room
            if room is not None and ready:
                room.hand_over(*rights)
                note.save(room, _fields(job, env))
                job.context.room = None  # no longer ours to remove
            return Opened(job.report, room if ready else None, exitcodes.OK if ready else exitcodes.STRICT)
        except Interrupted as interruption:
            return Opened(job.report, None, exitcodes.from_signal(interruption.number))
        except OSError as error:
            job.report.warn(f"running without a room: {error.strerror or error} in {job.report.room}")
            return Opened(job.report, None, exitcodes.OK)
        finally:
            signals.ignore()
            if job.context.room:
                job.context.room.close()


def _without_tools(env: Mapping[str, str]) -> dict[str, str]:
    """What a user has set here for a tool is not set in a container that does not inherit it."""
    theirs = {name for row in table.ROWS for name in row.variables}
    return {name: value for name, value in env.items() if name not in theirs}


def _fields(job: Job, env: Mapping[str, str]) -> dict[str, Any]:
    context, report = job.context, job.report
    return {
        "opened": time.time(),
        "settings": {option.name: list(value) for option, value in context.settings.rows()},
        "event": list(context.event),
        "store": context.store_path,
        "store_failure": context.store_failure,
        "managed": [row.name for row in context.managed],
        "cold": [row.name for row in context.cold],
        "filled": {name: [list(entry) for entry in entries] for name, entries in context.filled.items()},
        "env": report.env,
        "env_before": {name: env.get(name) for name in report.env},
        "tools": {name: tool._asdict() for name, tool in report.tools.items()},
        "warnings": report.warnings,
        "fill_seconds": report.fill_seconds,
    }


class Closed(Record):
    report: JobReport
    settings: Settings
    status: int
    #: What each variable that we set was before; None for one that was not set.
    env_before: Mapping[str, str | None]


def close_room(path: str, status: str, given: Mapping[str, Any], env: Mapping[str, str], progress: Progress) -> Closed:
    """Harvest, publish by the rules, remove. `given`: settings from this command line, which alone may differ."""
    number = parse_status(status)
    shown = 0 if status in STATUS_WORDS else number
    try:
        room, fields = note.take(path)
    except RoomError as error:
        return _nothing_to_close(error, number, shown, given)
    job = _restored(fields, given, env, progress)
    job.context.room = room
    report = job.report
    report.status = number
    report.room = room.path
    with signals_raise() as signals:
        try:
            job.take_key(beside=False)
            final = job.close()
        except Interrupted as interruption:
            final = exitcodes.from_signal(interruption.number)
        finally:
            signals.ignore()
            after.leave(job.context)
    return Closed(report, job.context.settings, shown if final == number else final, fields["env_before"])


def parse_status(text: str) -> int:
    if text in STATUS_WORDS:
        return STATUS_WORDS[text]
    if is_number(text) and int(text) < 256:
        return int(text)
    raise UsageError(f"--status {text!r} makes no sense", hint=f"a number, or one of {', '.join(STATUS_WORDS)}")


def _nothing_to_close(error: RoomError, number: int, shown: int, given: Mapping[str, Any]) -> Closed:
    """A room that is not there is cache trouble, and no reason to fail a job that may long be over."""
    settings = config.merge(given, {})
    report = JobReport(["ondol", "close"], "", "")
    report.status = number
    report.warn(f"nothing was harvested: {error.line()}")
    return Closed(report, settings, exitcodes.STRICT if settings.strict and not number else shown, {})


def _restored(fields: dict[str, Any], given: Mapping[str, Any], env: Mapping[str, str], progress: Progress) -> Job:
    """The job as it was when the room was opened; the variables of the job's own steps have no say in it."""
    job = Job(["ondol", "close"], _settings(fields["settings"], given), env, progress)
    context, report = job.context, job.report
    context.event = policy.agreed(policy.Event(*fields["event"]), context.event)
    context.scopes = policy.scopes(context.settings.scope, context.event)
    context.store_path = report.store = fields["store"]
    context.store_failure = fields["store_failure"]
    context.managed = [row for name in fields["managed"] for row in registry.choose([name])]
    context.cold = [row for name in fields["cold"] for row in registry.choose([name])]
    context.filled = {name: [Filled.of(entry) for entry in entries] for name, entries in fields["filled"].items()}
    report.scope = context.scopes.write
    report.remarks = []  # said when the room was opened
    report.env = fields["env"]
    report.tools = {name: ToolReport(**tool) for name, tool in fields["tools"].items()}
    report.warnings = list(fields["warnings"])
    report.fill_seconds = fields["fill_seconds"]
    report.run_seconds = max(0.0, time.time() - fields["opened"])
    return job


def _settings(saved: dict[str, Any], given: Mapping[str, Any]) -> Settings:
    now = config.merge(given, {})
    values = {option.name: Value(*saved.get(option.name, (value.value, value.origin))) for option, value in now.rows()}
    values |= {option.name: value for option, value in now.rows() if option.name in given}
    return Settings(values)
