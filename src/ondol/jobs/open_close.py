"""`ondol open` and `ondol close`: a job whose command somebody else runs, in a container or over several CI steps.

They are the two halves of `jobs/run_command`, with a note between them: a file beside the inside of the room, where no
job can reach it. It holds what was decided before any of the job's code ran: the settings, the CI event, what was
filled. Close believes it only if it and the room around it belong to the user who closes; what a job leaves inside the
room under the same name is just a file. Whatever else decides about trust is read again from outside the room.
"""

import json
import os
import stat
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ondol import config, exitcodes
from ondol.config import Settings, Value
from ondol.errors import RoomError, UsageError
from ondol.foreign_text import is_number
from ondol.host import files, process, records
from ondol.job_report import JobReport
from ondol.jobs import after
from ondol.jobs.job import Job, Progress, read_json
from ondol.jobs.run_command import Interrupted, close_job, open_job, signals_raise, take_key
from ondol.room import handover
from ondol.room.handover import Wall
from ondol.room.room import INSIDE, OPEN, OPENER, OWNER, PREFIX, Room
from ondol.tools import table
from ondol.trust import ci, policy

_FORMAT = 4
_MAX_BYTES = 256 << 20
_CLOSING = "closing"
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


class Opened(NamedTuple):
    report: JobReport
    #: None if there is no room: the job runs as it would without us.
    room: Room | None
    status: int


def open_room(settings: Settings, env: Mapping[str, str], progress: Progress, how: Wall) -> Opened:
    """Open a room and fill it; it stays when we end. Raises `UsageError` if it cannot be given to that user at all."""
    rights = handover.rights(how, os.geteuid())
    job = Job(["ondol", "open"], settings, env if how.inherits else _without_tools(env), progress, at=how.at)
    with signals_raise() as signals:
        try:
            ready = open_job(job)
            room = job.room
            if room is not None and ready:
                room.hand_over(*rights)
                _save(room, _fields(job, env))
                job.let_go_of_room()
            return Opened(job.report, room if ready else None, exitcodes.OK if ready else exitcodes.STRICT)
        except Interrupted as interruption:
            return Opened(job.report, None, exitcodes.from_signal(interruption.number))
        except OSError as error:
            job.report.warn(f"running without a room: {error.strerror or error} in {job.report.room}")
            return Opened(job.report, None, exitcodes.OK)
        finally:
            signals.ignore()
            if job.room:
                job.room.close()


def _without_tools(env: Mapping[str, str]) -> dict[str, str]:
    """What a user has set here for a tool is not set in a container that does not inherit it."""
    theirs = {name for row in table.ROWS for name in row.variables}
    return {name: value for name, value in env.items() if name not in theirs}


def _fields(job: Job, env: Mapping[str, str]) -> dict[str, Any]:
    return {
        "opened": time.time(),
        "settings": {option.name: value for option, value in job.settings.rows()},
        "event": job.event,
        "job": job.keep(),
        "env": job.report.env,
        "env_before": {name: env.get(name) for name in job.report.env},
        "warnings": job.report.warnings,
        "fill_seconds": job.report.fill_seconds,
    }


class Closed(NamedTuple):
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
        room, fields = _take(path)
    except RoomError as error:
        return _nothing_to_close(error, number, shown, given)
    job = _restored(fields, given, env, progress)
    job.enter(room)
    report = job.report
    report.status = number
    with signals_raise() as signals:
        try:
            take_key(job, beside=False)
            final = close_job(job)
        except Interrupted as interruption:
            final = exitcodes.from_signal(interruption.number)
        finally:
            signals.ignore()
            after.leave(job)
    return Closed(report, job.settings, shown if final == number else final, fields["env_before"])


def parse_status(text: str) -> int:
    if text in STATUS_WORDS:
        return STATUS_WORDS[text]
    if is_number(text) and int(text) < 256:
        return int(text)
    raise UsageError(f"--status {text!r} is not a status", hint=f"a number, or one of {', '.join(STATUS_WORDS)}")


def _nothing_to_close(error: RoomError, number: int, shown: int, given: Mapping[str, Any]) -> Closed:
    """A room that is not there is cache trouble, and no reason to fail a job that may long be over."""
    settings = config.merge(given, {})
    report = JobReport(["ondol", "close"], "", "")
    report.status = number
    report.warn(f"nothing was harvested: {error.line()}")
    return Closed(report, settings, exitcodes.STRICT if settings.strict and not number else shown, {})


def _restored(fields: dict[str, Any], given: Mapping[str, Any], env: Mapping[str, str], progress: Progress) -> Job:
    """The job as it was when the room was opened; the variables of the job's own steps have no say in it."""
    settings = _settings(fields["settings"], given)
    event = policy.agreed(fields["event"], ci.read_event(env, read_json, settings.trusted_jobs))
    job = Job(["ondol", "close"], settings, env, progress, event=event, at="")
    job.go_on(fields["job"])
    report = job.report
    report.remarks = []  # said when the room was opened
    report.env = fields["env"]
    report.warnings = list(fields["warnings"])
    report.fill_seconds = fields["fill_seconds"]
    report.run_seconds = max(0.0, time.time() - fields["opened"])
    return job


def _settings(saved: dict[str, Value], given: Mapping[str, Any]) -> Settings:
    now = config.merge(given, {})
    values = {option.name: saved.get(option.name, value) for option, value in now.rows()}
    values |= {option.name: value for option, value in now.rows() if option.name in given}
    return Settings(values)


# -- the note between them ---------------------------------------------------------------------------------------------


def _save(room: Room, fields: dict[str, Any]) -> None:
    """Whole or not at all: from here on the room waits for `ondol close` and no longer for this process."""
    known = {"format": _FORMAT, "keeps_atime": room.keeps_atime, "seen_as": room.seen_as, **fields}
    files.write_whole(os.path.join(room.path, OPEN), json.dumps(records.plain(known)).encode(), 0o600)
    os.rename(os.path.join(room.path, OWNER), os.path.join(room.path, OPENER))


def _take(path: str) -> tuple[Room, dict[str, Any]]:
    """The room and its note, once: whoever asks second is told that there is none. Raises `RoomError`."""
    path = os.path.abspath(path)
    if os.path.basename(path) == INSIDE:
        path = os.path.dirname(path)
    if not os.path.basename(path).startswith(PREFIX):
        raise RoomError(f"{path} is not a room", hint="name the one that `ondol open` opened: $ONDOL_ROOM, --room-file")
    try:
        here = files.open_dir(path)
    except OSError as error:
        raise RoomError(f"there is no open room {path}", because=error.strerror or str(error))
    try:
        _check_owner(path, os.fstat(here))
        os.rename(OPEN, _CLOSING, src_dir_fd=here, dst_dir_fd=here)
        data, status = files.read_regular(_CLOSING, _MAX_BYTES, dir_fd=here)
        _check_owner(f"{path}/{_CLOSING}", status)
        # If we are killed from here on, the next job sweeps the room as it does any dead process' room.
        files.write_new(OWNER, process.myself().encode(), 0o600, dir_fd=here, sync=False)
    except OSError as error:
        why = "it was closed before" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise RoomError(f"the room {path} is not open", because=why)
    finally:
        os.close(here)
    return _note(path, data)


def _check_owner(path: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & files.OTHERS_CAN_WRITE:
        raise RoomError(
            f"{path} does not belong to this user alone",
            because=f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}; we are {os.geteuid()}",
            hint="close a room as the user who opened it",
        )


def _note(path: str, data: bytes) -> tuple[Room, dict[str, Any]]:
    try:
        fields = records.real(json.loads(data))
        if fields["format"] != _FORMAT:
            raise ValueError(f"format {fields['format']}")
        inner = os.path.join(path, INSIDE)
        return Room(path, keeps_atime=fields["keeps_atime"], inner=inner, seen_as=fields["seen_as"]), fields
    except (ValueError, KeyError, TypeError) as error:
        raise RoomError(
            f"the room {path} cannot be closed",
            because=f"its note cannot be read: {error}",
            hint="use one Ondol for both",
        )
