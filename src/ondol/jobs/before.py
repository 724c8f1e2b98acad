"""Before the command: open a room, decide what is set for each tool, fill the room from the store.

Nothing here can fail the job. Without a room the command runs as it would without us; without a store it runs cold.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from ondol import units
from ondol.errors import OndolError, RoomError
from ondol.host import bounded, files, filesystem, identity, zstd
from ondol.jobs.job import Job
from ondol.jobs.open_store import open_store
from ondol.room import fill, room, select
from ondol.room.fill import BadPack, FillResult
from ondol.store.api import Backend, Stored
from ondol.tools import registry, table
from ondol.tools.api import version_of
from ondol.tools.table import Row
from ondol.trust import policy

_Entries = list[list[Stored]]

#: So many lines about entries that were there and not taken are enough; the rest is counted in one.
_LINES = 3
#: In the report for programs: a thousand users must not make it a book.
_MOST = 100
_NOT_TUNED = "autotuning results are neither taken nor given: a job with --frozen or --require-warm measures for itself"


def prepare(job: Job) -> None:
    def alone() -> None:
        _open_room(job, base, keeps_atime)
        if job.room:
            _plan(job)
            if job.managed:
                _fill(job)

    try:
        base, keeps_atime = choose_base(job)
    except RoomError as error:
        job.report.warn(f"running without a room: {error.line()}")
        return
    if job.share_key:
        from ondol.jobs import sharing

        sharing.enter(job, base, alone, lambda: _plan(job))
    else:
        alone()


def choose_base(job: Job) -> tuple[str, bool]:
    """(the directory for the room, whether it keeps access times); raises `RoomError` if there is none."""
    choice, shown = room.choose_base(job.settings.room_dir, job.env)
    base = choice.candidate.path
    for passed, why in choice.passed:
        if passed.source == "--room-dir":
            origin = job.settings.origin("room-dir")
            job.report.warn(f"room-dir {passed.path} (from {origin}) is not used: {why} (using {base})")
    return base, shown.keeps_atime


def _open_room(job: Job, base: str, keeps_atime: bool) -> None:
    try:
        room.sweep(base)
        job.enter(room.open_room(base, keeps_atime=keeps_atime, at=job.at))
    except RoomError as error:
        job.report.warn(f"running without a room: {error.line()}")


def _plan(job: Job) -> None:
    nested = job.env.get(room.VARIABLE, "")
    here = job.open_room()
    job.set(here.env())
    places, cold, through = _fixed_places(job, [tool for tool in job.tools if tool.sharing == "C"])
    managed: list[Row] = []
    for tool in job.tools:
        place = places.get(tool.name) or here.seen(here.cache_dir(tool.name))
        planned = plan(job, tool, place, nested=bool(nested))
        ours = planned.managed and tool not in cold
        job.report.update(tool.name, managed=ours, used=0 if ours else None)
        if planned.remark and not nested:
            job.report.remarks.append(planned.remark)
        # Making and removing a directory for each tool that a job never uses would cost more than all else that we do:
        # those of the table make theirs themselves. For one that was named, or that a link leads to, we make sure.
        sure = tool.name in job.asked or bool(tool.below_tmp)
        if planned.managed and (not sure or _make_cache_dir(job, tool)):
            job.set(planned.env)
            if tool.travels and ours:
                managed.append(tool)
            if tool.below_tmp:
                _link_below_tmp(job, tool)
        if job.measures and job.tuning(tool) == "on":
            job.report.remarks.append(f"{tool.name}: {_NOT_TUNED}")
    job.manage(managed, cold, through)


def plan(job: Job, tool: Row, cache_dir: str, *, nested: bool) -> table.ToolPlan:
    """What this job does for a tool whose cache is to be this directory. `nested`: inside another `ondol run`."""

    def why_common(path: str) -> str:
        return "" if nested else filesystem.why_common(path)  # then variables name the room of that one

    return table.plan(
        tool,
        job.env,
        cache_dir,
        asked=tool.name in job.asked,
        tuning=job.tuning(tool) == "on" and not job.measures,
        # A job that publishes into a scope of its own has no such place in a cache that knows no scopes.
        publishes=job.scopes.write == policy.TRUSTED_SCOPE and job.may_publish(status=0).publish,
        setting=str(job.settings.value(tool.setting)) if tool.setting else "",
        why_common=why_common,
    )


def _fixed_places(job: Job, tools: list[Row]) -> tuple[dict[str, str], list[Row], list[str]]:
    """For tools whose caches only work at the path where they were made:

    (where the command will see each one's cache, the tools that stay cold, the words that start the command)

    Where namespaces are forbidden the command sees the room's own directories: private, nothing filled, nothing
    published, and said once.
    """
    tools = [tool for tool in tools if _make_cache_dir(job, tool)]
    if not tools:
        return {}, [], []
    names = ", ".join(tool.name for tool in tools)
    if job.at is not None:
        job.report.remarks.append(
            f"{names}: private and cold, because a fixed path needs `ondol run` around the command"
        )
        return {}, tools, []
    from ondol.host import fixed_place  # only for a job that names such a tool

    places = {tool.name: job.open_room().cache_dir(tool.name) for tool in tools}
    if why_not := fixed_place.why_not(places):
        job.report.remarks.append(f"{names}: private and cold, because fixed paths are not possible here: {why_not}")
        return {tool.name: _apart(job, tool, places[tool.name]) for tool in tools}, tools, []
    fixed = {tool.name: _apart(job, tool, fixed_place.path(tool.name)) for tool in tools}
    return fixed, [], fixed_place.starter(places)


def _apart(job: Job, tool: Row, place: str) -> str:
    """With a directory for each version of what the tool's key forgets."""
    if not tool.apart:
        return place
    from ondol.host import interpreter

    return f"{place}/{interpreter.describe(job.program, job.env, tool.apart)}"


def _make_cache_dir(job: Job, tool: Row) -> bool:
    try:
        job.open_room().make_cache_dir(tool.name)
    except OSError as error:
        job.report.update(tool.name, managed=False)
        place = job.open_room().path
        why = f"{error.strerror or error} in the room {place} (fix: a larger --room-dir)"
        job.report.warn(f"running without a {tool.name} cache: {why}")
        return False
    return True


def _link_below_tmp(job: Job, tool: Row) -> None:
    user = identity.user_name(job.env)
    if not user:
        # Python's getpass fails for a user without a name, and some tools with it: torch before 2.13.
        user = f"uid_{os.getuid()}"
        job.set({"LOGNAME": user})
    try:
        job.open_room().link_below_tmp(table.below_tmp(tool, user), tool.name)
    except OSError:
        pass  # then that part is the job's own and cold, as any TMPDIR is


def load(job: Job) -> None:
    """Import, before the command, what is needed after it: `uv sync` may replace the very venv that we live in.

    A module of another version, or none, is what an import would find then. Most of it is imported with this module;
    this is the rest, for jobs that have such files.
    """
    from ondol.report import terminal  # noqa: F401

    if not job.managed:
        return
    for tool in job.managed:
        registry.load(tool)
    try:
        zstd.codec()
    except OndolError:
        pass  # publishing says so, if there is anything to publish


def _fill(job: Job) -> None:
    started = time.monotonic()
    try:
        load(job)  # now: whoever fills is forked with it
    except Exception:
        pass  # it is tried again, and said
    try:
        answers, strangers = bounded.call(
            partial(_fill_in_child, job), job.settings.store_timeout, job.progress("filling")
        )
    except bounded.TimedOut as error:
        slow = f"the store at {job.store_path} is too slow: {error.line()} (fix: a larger --store-timeout)"
        _run_cold(job, slow)
    except OndolError as error:
        _run_cold(job, error.line())
    else:
        for name, answer in answers.items():
            take(job, name, answer)
        if strangers:
            _tell_of_strangers(job, strangers)
    job.no_more_progress()
    job.report.fill_seconds = time.monotonic() - started


def _run_cold(job: Job, why: str) -> None:
    """The store failed us: say so once, leave it alone, and start from an empty cache.

    What a helper that was cut off had filled is nobody's knowledge; kept, it would look like the command's own work.
    """
    job.lose_store(why)
    job.report.warn(f"running cold: {why}")
    here = job.open_room()
    files.remove_tree(here.stage)  # a helper stuck in the kernel finds no place to move from when it wakes up
    for place in filter(os.path.isdir, [here.cache_dir(tool.name) for tool in job.managed]):
        files.remove_tree(place)
        os.mkdir(place, 0o755)


def _fill_in_child(job: Job, report: bounded.Report) -> Any:
    store = open_store(job.settings)
    answers: dict[str, FillResult] = {}
    there = store.tools(job.scopes.read)
    for row in job.managed:
        needed = _needed(job, store, row) if row.name in there else []
        index = needed or (store.index(row.name, job.scopes.read) if row.name in there else [])
        if not index:
            continue
        zstd.codec()  # without one every entry would be a miss, and nobody would know why
        tool = registry.load(row)
        first, later, left_out, untuned = choose_entries(job, store, row, index)
        if needed:
            first = [*first, *later]
        if later or needed:
            left_out = 0  # counted by who fills the rest
        processes, seconds, stage = os.cpu_count() or 1, job.settings.store_timeout, job.open_room().stage
        result = fill.fill(store, tool, first, job.cache(row), stage, report, processes, seconds)
        answers[row.name] = result._replace(left_out=left_out, untuned=untuned, later=bool(later or needed))
    return answers, store.passed_over({row.name for row in job.managed}, job.scopes.read)


def _needed(job: Job, store: Backend, row: Row) -> list[Stored]:
    """What this job used the last time, found without a look at all the rest; empty if all is filled at once."""
    scopes = job.scopes.read
    if row.sharing not in table.ONE_BY_ONE or job.fills_all:
        return []
    if not store.has_more_than(select.AT_ONCE, row.name, scopes):
        return []
    needed = [one for one in store.uses_of(job.name) if one.tool == row.name and one.scope in scopes]
    return sorted(store.find(needed), key=lambda stored: scopes.index(stored.address.scope))


def choose_entries(job: Job, store: Backend, row: Row, index: list[Stored]) -> tuple[_Entries, _Entries, int, int]:
    """(to fill before the command starts, beside it, how many `fill-max` and how many the job's wishes leave out)"""
    tool = registry.load(row)
    taken = [stored for stored in index if job.takes(row, stored.address.fingerprint)]
    uses = store.last_uses() if sum(stored.size for stored in taken) > job.settings.fill_max else {}
    accepts, versions = partial(tool.accepts, host=job.host), version_of if tool.versioned else None
    wanted, left_out = select.select(taken, accepts, uses, job.settings.fill_max, versions)
    at_once = select.AT_ONCE if row.sharing in table.ONE_BY_ONE and not job.fills_all else len(wanted)
    return wanted[:at_once], wanted[at_once:], left_out, len(index) - len(taken)


def take(job: Job, name: str, result: FillResult) -> None:
    """What was filled before the command started, or beside it."""
    if result.untuned and job.measures and f"{name}: {_NOT_TUNED}" not in job.report.remarks:
        job.report.remarks.append(f"{name}: {_NOT_TUNED}")
    everything = job.take(name, result.filled, later=result.later)
    told = job.report.tools[name]
    damaged = [pack for pack in result.bad if not pack.fix]
    untrusted = [pack for pack in result.bad if pack.fix]
    job.report.update(
        name,
        filled=len(everything),
        filled_bytes=sum(entry.raw_bytes for entry in everything),
        left_out=told.left_out + result.left_out,
        bad_packs=told.bad_packs + len(damaged),
        bad_reasons=told.bad_reasons + tuple(f"{bad.place}: {bad.why}" for bad in damaged),
        untrusted=dict(Counter(told.untrusted) + Counter(pack.why for pack in untrusted)),
    )
    if damaged:
        aside = sum(bad.set_aside for bad in damaged)
        job.report.warn(
            f"{len(damaged)} bad {name} pack(s) in {job.store_path} were not used, {aside} set aside; "
            f"first: {damaged[0].why} (fix: ondol store verify --store {job.store_path})"
        )
    if untrusted:
        _tell_of_untrusted(job, name, untrusted)
    if result.unfit:
        what = f"{units.entries(len(result.unfit))} of the store not filled, because made for other machines or sources"
        job.report.remarks.append(f"{name}: {what}; first: {result.unfit[0]}")
    if result.stopped:
        job.report.warn(f"the room is only partly filled: {result.stopped} (fix: a larger --room-dir)")


def _tell_of_strangers(job: Job, found: Sequence[tuple[int, str, int]]) -> None:
    """Which entries were there and not taken: (owner of the lane, why, how many). Else a job is cold, and nobody knows
    why.
    """
    found = sorted(found, key=lambda one: (-one[2], one[0]))
    job.report.passed_over = [{"owner": owner, "why": why, "entries": count} for owner, why, count in found[:_MOST]]
    look = f"`ondol doctor {job.store_path}`"
    told = [f"{units.entries(count)} of uid {owner} passed over: {why}; {look}" for owner, why, count in found[:_LINES]]
    if rest := found[_LINES:]:
        told.append(f"{units.entries(sum(one[2] for one in rest))} of {len(rest)} other users passed over; {look}")
    job.report.remarks += told


def _tell_of_untrusted(job: Job, tool: str, packs: Sequence[BadPack]) -> None:
    """Whole packs that must not be used: a line for each reason."""
    reasons: dict[str, list[BadPack]] = {}
    for pack in packs:
        reasons.setdefault(pack.why, []).append(pack)
    for why, some in list(reasons.items())[:_LINES]:
        said = f"{units.plural(len(some), f'{tool} pack')} in {job.store_path} passed over: {why} (fix: {some[0].fix})"
        # What the store's owner has taken back is no trouble.
        job.report.remarks.append(said) if why.startswith("revoked") else job.report.warn(said)
    if len(reasons) > _LINES:
        more = units.plural(len(reasons) - _LINES, "more reason")
        job.report.remarks.append(f"{tool} packs passed over for {more}; `ondol store verify --store {job.store_path}`")
