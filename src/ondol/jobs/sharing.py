"""One room for all ranks of a job step on a node: the first fills it, the others find it filled, the last publishes.

What every rank would otherwise do for itself, sixteen times on one node, is done once. With `on-success` a rank that
fails keeps anything from being published. When one was killed, only what a tool itself calls whole is published.
"""

import hashlib
import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ondol import exitcodes, units
from ondol.doctor import releases
from ondol.errors import RoomError
from ondol.host import files, identity, process
from ondol.jobs.job import Job, Shared
from ondol.room import choose, rendezvous, room
from ondol.room.publish import PublishResult
from ondol.room.rendezvous import Rendezvous
from ondol.room.room import Room

#: How much longer than a slow store the others wait for the first one; and how long for the lock on the way out.
_MARGIN = 15.0
#: What a rank leaves in the room if it did not succeed: its status.
_FAILED = "failed"


def enter(job: Job, base: str, alone: Callable[[], None], plan: Callable[[], None]) -> None:
    """`alone` opens a room and fills it; `plan` says what is set for the tools in a room that is there."""
    racing = _racing(job) if job.settings.share == choose.AUTO else ""
    if racing:
        if job.env.get("SLURM_LOCALID") == "0":  # once, not once for each rank
            why = f"each rank has a room of its own: {racing} loses files when ranks compile into one directory"
            job.report.warn(f"{why} (fix: upgrade it; --share NAME shares all the same)")
        alone()
        return
    digest = _digest(job)
    rendezvous.sweep(base)
    try:
        meeting = rendezvous.meet(base, digest, job.settings.store_timeout + _MARGIN)
    except RoomError as error:
        job.report.remarks.append(f"this rank has a room of its own: {error.line()}")
        alone()
        return
    with meeting:
        fields = meeting.found()
        if fields is None or not _join(job, fields):
            alone()
            if job.room is None:
                return
            meeting.announce({"path": job.room.path, "keeps_atime": job.room.keeps_atime, "job": job.keep()})
        else:
            plan()
        try:
            job.share(Shared(base, digest, rendezvous.sign_in(job.open_room().path)))
        except OSError as error:
            meeting.disband()
            job.report.remarks.append(f"the room is not shared: {error.strerror or error}")


def _digest(job: Job) -> str:
    """Ranks that would fill, read or write anything else, or that could not judge each other, do not meet."""
    settings = job.settings
    parts: list[Any] = [job.share_key, identity.hostname(), process.pid_namespace(), job.store_path, job.scopes]
    parts += [settings.tools, settings.fill_max, settings.trust, settings.frozen, settings.publish]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _racing(job: Job) -> str:
    """The installed Triton, if it is one whose processes race in a directory that they share; else empty.

    Before 3.2 its temporary names are a PID and a random number, which two containers can have in common.
    """
    program = shutil.which(job.program, path=job.env.get("PATH"))
    beside = [os.path.dirname(os.path.abspath(program))] if program else []
    env = {**job.env, "PATH": os.pathsep.join([*beside, job.env.get("PATH", os.defpath)])}
    for found in releases.find(("triton",), env):
        if any(releases.known_bad("triton", found.version)):
            return f"Triton {found.version} ({found.folder})"
    return ""


def _join(job: Job, fields: dict[str, Any]) -> bool:
    """Take part in what the first one made. Each has a temporary directory of its own: fixed names must not collide."""
    found = Room(fields["path"], keeps_atime=fields["keeps_atime"])
    try:
        found.tmp = files.make_private(found.tmp, "r")
    except OSError:
        return False
    job.enter(found, ours=False)
    job.go_on(fields["job"])
    return True


def leave(job: Job, status: int, given: dict[str, PublishResult]) -> int | None:
    """Sign out. Returns how all ranks together ended, if we are the last one out: the room is ours now. Else None.

    `given` is what we published beside our command; then it is what all have.
    """
    part, here = job.shared, job.open_room()
    assert part is not None
    part.left = True
    try:
        with rendezvous.meet(part.base, part.digest, _MARGIN) as meeting:
            fields = meeting.found() or {}
            for tool, outcome in fields.get("given", {}).items():
                given[tool] = given.get(tool, PublishResult()) + outcome
            ended = _leave(job, part, here, status, meeting)
            if ended is None and fields and given:
                with suppress(OSError):  # a full disk: the last one counts less than there is
                    meeting.announce({**fields, "given": given})
            return ended
    except (RoomError, OSError) as error:
        why = error.line() if isinstance(error, RoomError) else error.strerror
        job.report.remarks.append(f"the shared room {here.path} is left to a later job: {why}")
        job.let_go_of_room()
        return None


def _leave(job: Job, part: Shared, here: Room, status: int, meeting: Rendezvous) -> int | None:
    if status:
        _note_failure(here, status)
    others = {name: owner for name, owner in rendezvous.members(here.path).items() if name != part.member}
    vanished = [name for name, owner in others.items() if process.certainly_dead(owner)]
    if len(vanished) < len(others):
        files.unlink_quietly(os.path.join(here.path, "members", part.member))
        job.report.remarks.append("the room is shared: the last rank on this node harvests and publishes")
        job.report.tools.clear()  # it tells what became of the fill, too
        job.let_go_of_room()
        return None
    meeting.disband()
    failure = _failure(here) or status
    if vanished or exitcodes.cut_off(failure):
        part.cut_off = [(0.0, math.inf)]
    if vanished:
        job.report.remarks.append(
            f"{units.plural(len(vanished), 'rank')} vanished: only entries that their tools call whole are published"
        )
        # A command may live on in the room: whoever sweeps looks, we do not take it away.
        part.room_in_use = process.mentioned(f"{room.VARIABLE}={here.path}")
    return failure


def _note_failure(here: Room, status: int) -> None:
    try:
        files.write_new(os.path.join(here.path, _FAILED), str(status).encode(), 0o600, sync=False)
    except OSError:
        return  # one is enough


def _failure(here: Room) -> int:
    try:
        return int(files.read_regular(os.path.join(here.path, _FAILED), 16)[0])
    except (OSError, ValueError):
        return 0
