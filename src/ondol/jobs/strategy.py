"""What a job would do here, and why, without running one: for whoever reviews a change or wonders about a cold job."""

from collections.abc import Mapping
from typing import NamedTuple

from ondol.config import Settings
from ondol.errors import RoomError
from ondol.host import filesystem
from ondol.jobs import before
from ondol.jobs.job import Job
from ondol.room import room


class Line(NamedTuple):
    what: str
    value: str
    why: str


def strategy(settings: Settings, env: Mapping[str, str]) -> list[Line]:
    job = Job(["true"], settings, env, lambda *_: None)
    decision = job.may_publish(status=0)
    into = job.scopes.write if decision.publish else "nothing"
    event = f"{job.event.system}: {job.event.because}" if job.event.system else "not on CI"
    ranks = ("one for all processes", f"of {job.share_key}") if job.share_key else ("one for each job", "")
    return [
        _place(job),
        Line("rooms", *ranks),
        Line("store", job.store_path, f"on {filesystem.fs_type(job.store_path)}"),
        Line("reads", ", ".join(job.scopes.read), event),
        Line("publishes", into, decision.because),
        *_caches(job, env),
    ]


def _place(job: Job) -> Line:
    try:
        base, _ = before.choose_base(job)
    except RoomError as error:
        return Line("room", "none", error.line())
    return Line("room", f"below {base}", "; ".join([f"on {filesystem.fs_type(base)}", *job.report.warnings]))


def _caches(job: Job, env: Mapping[str, str]) -> list[Line]:
    plans = {tool.name: before.plan(job, tool, "ROOM", nested=room.VARIABLE in env) for tool in job.tools}
    told = [
        Line(name, "in the room" if plan.managed else "left alone", plan.remark.partition(": ")[2])
        for name, plan in plans.items()
        if plan.remark
    ]
    others = [name for name, plan in plans.items() if plan.managed and not plan.remark]
    return [Line("caches", "in the room", ", ".join(others)), *told]
