"""After the command: what of the fill was used, what is new, whether and how the new is published, and leaving."""

import math
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from ondol import exitcodes, units
from ondol.errors import OndolError
from ondol.host import bounded
from ondol.jobs import beside, maker
from ondol.jobs.job import Job
from ondol.jobs.open_store import open_store
from ondol.room import harvest
from ondol.room.fill import Filled
from ondol.room.harvest import New, Span, Used
from ondol.room.publish import Publisher, PublishResult, publish
from ondol.store.api import Stat
from ondol.store.entry import Address
from ondol.tools import registry, table
from ondol.tools.api import Found
from ondol.tools.table import Row

#: For looking at what a job left, and for packing it: an entry of the largest size, several times.
HARVEST_MEMORY, PUBLISH_MEMORY = 2 << 30, 6 << 30
#: How deep, and at how many directories of each level, a user's own cache is looked at.
_LEVELS, _MOST_LOOKED_AT = 3, 64


def conclude(job: Job) -> None:
    status = job.report.status
    given = beside.stop(job)
    if job.shared:
        from ondol.jobs import sharing

        status = sharing.leave(job, status, given) or status
    decision = job.may_publish(status)
    job.report.may_publish = decision.publish and not job.store_failure
    job.report.publish_decision = f"the store failed: {job.store_failure}" if job.store_failure else decision.because
    if job.room is None:
        return
    new: dict[str, list[Found]] = {}
    used: dict[str, list[Filled]] = {}
    for tool, seen in _look_at_all(job, cut_off=exitcodes.cut_off(status)):
        new[tool.name], used[tool.name] = _note(job, tool, *seen, given.get(tool.name))
    for name, outcome in given.items():
        _take(job, name, outcome)
        job.report.update(name, beside=outcome.published)
    for tool in job.cold:
        if not job.cache(tool).is_empty():
            # What it was cannot be told here; that it was not warm can.
            job.report.update(tool.name, new_titles=(f"whatever {tool.name} made in its private cache",))
    _look_elsewhere(job)
    if any(new.values()) and not job.scopes.write and job.settings.publish != "never" and job.event.hint:
        job.report.remarks.append(f"nothing was published: {decision.because} ({job.event.hint})")
    if job.report.may_publish and any(tool.new or tool.used or tool.remade for tool in job.report.tools.values()):
        _publish(job, partial(_publish_in_child, job, new, used, given), anything=any(new.values()))


def _look_at_all(job: Job, *, cut_off: bool) -> list[tuple[Row, tuple[Used, New]]]:
    """In a helper with bounds: whatever a job leaves in its room, it costs time and memory there and not here."""
    tools = [tool for tool in job.managed if job.filled.get(tool.name) or not job.cache(tool).is_empty()]
    if not tools:
        return []
    try:
        look = partial(_look_in_child, job, tools, job.cut_off(), cut_off)
        seen: list[tuple[Used, New]] = bounded.call(
            look, job.settings.store_timeout, job.progress("harvesting"), HARVEST_MEMORY
        )
    except OndolError as error:
        job.report.warn(f"nothing new was published: the job's caches could not be looked at: {error.line()}")
        return []
    finally:
        job.no_more_progress()
    return list(zip(tools, seen, strict=True))


def _look_in_child(job: Job, tools: list[Row], spans: list[Span], cut_off: bool, report: bounded.Report) -> Any:
    answers: list[tuple[Used, New]] = []
    for number, tool in enumerate(tools):
        report(number, len(tools))
        filled, cache = job.filled.get(tool.name, []), job.cache(tool)
        used = harvest.usage(cache, filled, keeps_atime=job.open_room().keeps_atime)
        if cut_off:
            ended = cache.last_change() if job.ended is None else job.ended
            spans = [*spans, (ended - harvest.SETTLING, math.inf)]
        known = {entry.address[2:] for entry in filled}
        new = harvest.new_entries(registry.load(tool), cache, known, job.host, spans)
        new = new._replace(found=[item for item in new.found if job.takes(tool, item.fingerprint)])
        answers.append((used, new))
    return answers


def _note(job: Job, tool: Row, used: Used, new: New, given: PublishResult | None) -> tuple[list[Found], list[Filled]]:
    """(new and not yet given to the store, used); nothing is published here."""
    filled = job.filled.get(tool.name, [])
    there = set(given.there) if given else set()
    left = [item for item in new.found if (item.fingerprint, item.key) not in there]
    seen = {entry.address[2:] for entry in used.used}
    packs = [_pack(entry, (entry.address[2:] in seen) if used.known else None) for entry in filled]
    job.report.update(
        tool.name,
        used=len(used.used) if used.known else None,
        remade=len(used.remade),
        new=len(left) + len(there),
        new_titles=tuple(item.title for item in new.found) + tuple(item.title for item in used.remade),
        refused=dict(Counter(refusal.kind for refusal in new.refused)),
        seconds_saved=sum(entry.seconds for entry in used.used),
        seconds_new=sum(item.seconds for item in new.found),
        packs=tuple(packs),
    )
    if used.known and filled and not used.used and (new.found or used.remade):
        job.report.remarks.append(
            f"{tool.name}: {len(filled)} entries were filled and none was used: other kernels, or another "
            f"{tool.name} or compiler version than the store's"
        )
    return left, used.used


def _look_elsewhere(job: Job) -> None:
    """tox, sudo, bazel and their like start programs without our variables: those compile into the user's own cache,
    private to nobody, and here everything looks quiet.
    """
    began = (job.ended or time.time()) - job.report.run_seconds
    without_us = {name: value for name, value in job.env.items() if name not in job.report.env}
    for tool in job.managed:
        told, place = job.report.tools[tool.name], table.default_location(tool, without_us)
        # Where access times tell nothing, what was filled may well have been used.
        unused = told.used == 0 and not (told.new or told.remade)
        if unused and _changed_since(began, place):
            variable = next(iter(tool.variables), "")
            # With --require-warm a job that compiled out of our sight must not pass for a warm one.
            job.report.update(tool.name, new_titles=(f"whatever was written to {place}",))
            job.report.remarks.append(
                f"{tool.name}: {place} was written to while the command ran, and nothing in the room was used. If the "
                f"command wrote there, {variable} did not reach it: tell tox (pass_env), sudo (--preserve-env), docker "
                "(-e) or bazel (--test_env) to pass it on, or put `ondol run` inside"
            )


def _changed_since(moment: float, place: str) -> bool:
    """Whether a directory there got a new name: the top one, or one of those below it, of which some keep versions."""
    level = [place]
    for _ in range(_LEVELS):
        below: list[str] = []
        for path in level[:_MOST_LOOKED_AT]:
            try:
                if os.stat(path).st_mtime > moment:
                    return True
                with os.scandir(path) as found:
                    below += [one.path for one in islice(found, _MOST_LOOKED_AT) if one.is_dir(follow_symlinks=False)]
            except OSError:
                continue  # not there, as for most tools, or not ours to look at
        level = below
    return False


def _pack(entry: Filled, used: bool | None) -> dict[str, Any]:
    """For the audit after an incident: which job ran whose code."""
    address = "/".join(entry.address)
    return {"entry": address, "owner": entry.owner, "digest": entry.digest, "signer": entry.signer, "used": used}


def _publish(job: Job, work: Callable[[bounded.Report], Any], *, anything: bool) -> None:
    started = time.monotonic()
    try:
        answers = bounded.call(work, job.settings.store_timeout, job.progress("publishing"), PUBLISH_MEMORY)
    except bounded.TimedOut as error:
        job.report.warn(f"not everything was published to {job.store_path}: {error.line()}")
    except OndolError as error:
        if anything:
            job.report.may_publish = False
            job.report.publish_decision = f"the store failed: {error.line()}"
            job.report.warn(f"nothing new was published: {error.line()}")
    else:
        for name, outcome in answers.items():
            _take(job, name, outcome)
    job.no_more_progress()
    job.report.publish_seconds = time.monotonic() - started


def _publish_in_child(
    job: Job,
    new: dict[str, list[Found]],
    used: dict[str, list[Filled]],
    given: dict[str, PublishResult],
    report: bounded.Report,
) -> Any:
    store = open_store(job.settings)
    origin = maker.provenance(job.env) if any(new.values()) else {}
    scope, seconds = job.scopes.write, job.settings.store_timeout
    answers: dict[str, PublishResult] = {}
    needed: list[Address] = []
    for row in job.managed:
        found = new.get(row.name)
        if found:
            tool = registry.load(row)
            publisher = Publisher(store, tool, job.cache(row), scope, origin, job.sign)
            answers[row.name] = publish(publisher, found, report, seconds)
        if used.get(row.name):
            needed += [entry.address for entry in used[row.name]]
    if needed:
        store.note_use(needed)
    # What the next job of this name will need: what this one used, and what it made.
    needed += [Address(scope, name, item.fingerprint, item.key) for name, found in new.items() for item in found]
    needed += [Address(scope, name, *key) for name, outcome in given.items() for key in outcome.there]
    if needed:
        store.note_use(needed, job.name)
    store.report(_stats(job, used))
    return answers


def _stats(job: Job, used: dict[str, list[Filled]]) -> list[Stat]:
    """Nothing of tools whose hits nobody can tell: a rate without them would be a lie."""
    day, rows = int(time.time() // 86400), []
    for name, tool in job.report.tools.items():
        if tool.used is not None and tool.used + tool.new + tool.remade:
            size, milliseconds = sum(one.raw_bytes for one in used.get(name, ())), round(tool.seconds_saved * 1000)
            rows.append(Stat(day, job.scopes.write, name, tool.used, tool.new + tool.remade, size, milliseconds))
    return rows


def _take(job: Job, name: str, outcome: PublishResult) -> None:
    """Beside the command and after it: both count."""
    told = job.report.tools[name]
    refused = Counter(told.refused) + Counter(kind for kind, _, _ in outcome.refused)
    job.report.update(
        name,
        published=told.published + outcome.published,
        published_bytes=told.published_bytes + outcome.published_bytes,
        already_there=told.already_there + outcome.already_there,
        refused=dict(refused),
    )
    strange = [why for kind, _, why in outcome.refused if kind in ("untrusted", "several-names")]
    if strange:
        job.report.remarks.append(f"{name}: {units.entries(len(strange))} not published; first: {strange[0]}")
    if outcome.trouble:
        what, because, hint = outcome.trouble
        job.report.warn(f"not everything was published: {OndolError(what, because=because, hint=hint).line()}")


def final_status(job: Job) -> int:
    """The command's own, unless the user asked for another answer."""
    settings, report = job.settings, job.report
    if report.status == 0 and settings.require_warm and report.compiled():
        return exitcodes.NOT_WARM
    if report.status == 0 and settings.strict and report.warnings:
        return exitcodes.STRICT
    return report.status


def leave(job: Job) -> None:
    """The room goes, or stays if that was asked for. Nothing in it can keep us."""
    if job.shared and not job.shared.left:  # we were stopped before all was done
        from ondol.jobs import sharing

        sharing.leave(job, job.report.status or exitcodes.INTERNAL, given={})
    room = job.room
    if room is None or (job.shared and job.shared.room_in_use):
        return
    if not job.settings.keep_room:
        if not room.close():
            job.report.remarks.append(
                f"the room {room.path} holds files that could not be removed: ondol gc tells whose"
            )
        return
    job.report.room_kept = True
    try:
        room.keep()
    except OSError as error:
        job.report.warn(f"the room {room.path} may be swept by a later job: {error.strerror or error}")
