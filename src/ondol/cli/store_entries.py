"""`ondol store ls | show | verify | gc | adopt`: the entries of a store."""

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

from ondol import exitcodes, units
from ondol.cli import flags, output
from ondol.config import Settings
from ondol.errors import EntryUntrusted, OndolError, PackError, StoreError, UsageError
from ondol.jobs import adopt as adopting
from ondol.jobs import maker
from ondol.jobs.job import read_json
from ondol.jobs.open_store import location, open_store
from ondol.report import table
from ondol.report.progress import ProgressBar
from ondol.store import check, gc_plan, pack
from ondol.store import gc as cleaning
from ondol.store.api import Stored
from ondol.store.directory import DirectoryStore
from ondol.tools import registry
from ondol.trust import ci, policy

#: Of what was left behind in an adopted cache.
_SHOWN = 50


@flags.command(
    "store ls",
    """List the entries of a store, newest first.

`*` marks those of users that you do not trust: they are never used by your jobs.""",
    """\
  ondol store ls
  ondol store ls --store /ci-cache/ondol --tool triton --json""",
)
def ls(parsed: argparse.Namespace) -> None:
    store = open_store(flags.settings(parsed))
    found = [
        stored
        for stored in store.everything()
        if parsed.tool in ("", stored.address.tool) and parsed.in_scope in ("", stored.address.scope)
    ]
    found.sort(key=lambda stored: (-stored.published, stored.address))
    header = ("key", "tool", "scope", "fingerprint", "packed", "age", "owner")
    lines = table.lines(header, [_row(stored, time.time()) for stored in found], right=(4, 5, 6)) if found else []
    entries = [{**s.address._asdict(), **s._asdict(), "address": "/".join(s.address)} for s in found]
    output.answer("store-ls", {"entries": entries}, lines, as_json=parsed.json)
    if not parsed.json:
        output.tell(f"{units.entries(len(found))} in {store.where}")


def _row(stored: Stored, now: float) -> tuple[str, ...]:
    tool, scope, key = stored.address.tool, stored.address.scope, stored.address.key
    marked = key if stored.trusted else f"{key} *"
    told = (units.size(stored.size), units.age(now - stored.published), str(stored.owner))
    return marked, tool, scope, stored.address.fingerprint, *told


@flags.command(
    "store show",
    "Show one entry: its files, where it came from, what a hit saves. KEY may be cut short while it is unambiguous.",
    "  ondol store show 5DKNV7",
    key={"metavar": "KEY"},
)
def show(parsed: argparse.Namespace) -> None:
    store = open_store(flags.settings(parsed))
    found = [stored for stored in store.everything() if stored.address.key.startswith(parsed.key)]
    keys = {stored.address.key for stored in found}
    if not found:
        raise StoreError(f"no entry {parsed.key!r} in {store.where}", hint=f"ondol store ls --store {store.where}")
    if len(keys) > 1:
        because = ", ".join(sorted(keys)[:5])
        raise StoreError(f"{parsed.key!r} is ambiguous", because=because, hint="type more of the key")
    facts = [_facts(store, stored) for stored in found]
    lines = (line for entry in facts for line in _about(entry))
    output.answer("store-show", {"entries": facts}, lines, as_json=parsed.json)


def _facts(store: DirectoryStore, stored: Stored) -> dict[str, Any]:
    facts = {**stored.address._asdict(), "owner": stored.owner, "trusted": stored.trusted, "packed": stored.size}
    try:
        manifest = pack.inspect(store.fetch(stored), stored.address)
    except (PackError, OSError) as error:
        return {**facts, "problem": str(error)}
    try:
        store.vet(stored, manifest)
    except (PackError, EntryUntrusted) as error:
        facts |= {"trusted": False, "problem": str(error)}
    facts |= {"signer": manifest.signer, "digest": manifest.digest.hex()}
    table_of_files = [{"name": n, "size": s, "executable": x, "sha256": d} for n, s, x, d in manifest.files]
    facts |= {"title": manifest.title, "seconds": manifest.seconds, "provenance": manifest.provenance}
    return {**facts, "files": table_of_files}


def _date(value: object) -> str:
    """Seconds since the epoch as people read them; whatever else a foreign pack says, as it is."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(str(value))))
    except (ValueError, OverflowError, OSError):
        return str(value)


def _about(facts: dict[str, Any]) -> Iterator[str]:
    shown = ("key", "tool", "title", "scope", "fingerprint", "owner", "trusted", "problem", "signer", "digest")
    told = [(name, facts[name]) for name in shown if name in facts]
    if "files" in facts:
        told += [("packed", units.size(facts["packed"])), ("saves", units.seconds(facts["seconds"]))]
        told += [
            (name, _date(value) if name == "time" else value) for name, value in sorted(facts["provenance"].items())
        ]
    yield from (f"{name.ljust(12)} {value}" for name, value in told)
    if "files" in facts:
        rows = [(f["name"], units.size(f["size"]), f["sha256"][:16]) for f in facts["files"]]
        yield from table.lines(("file", "size", "sha256"), rows, right=(1,))


@flags.command(
    "store verify",
    """Check every byte of every pack and set the bad ones aside (into their lane's quarantine folder).

A pack of another user that you may not move is reported and stays; it is never used. Packs that readers pass over,
because others can write them, are counted, with the command that mends them. Exit status: 0 all good, 1 corrupt packs
found, 4 packs that could not be read or that readers pass over, 5 both, 3 no such store.""",
    """\
  ondol store verify
  ondol store verify --store /ci-cache/ondol --keep       report only""",
)
def verify(parsed: argparse.Namespace) -> int:
    settings = flags.settings(parsed)
    where = location(settings)
    # First of all: a store whose own directory was opened with all that is in it is refused as a whole.
    passed = check.look(where).lines(where, os.geteuid())
    for what, command in [] if parsed.json else passed:
        output.say(what)
        output.say(f"  fix: {command}")
    store = open_store(settings)
    with ProgressBar() as bar:
        result = check.verify(store, lambda done, total: bar("verifying", done, total), keep=parsed.keep)
    places = ["/".join([finding.stored.place, *finding.stored.address]) for finding in result.findings]
    found = [*zip(places, result.findings, strict=True)]
    facts = {
        "good": result.good,
        "good_bytes": result.good_bytes,
        "findings": [{**finding._asdict(), "stored": place} for place, finding in found],
        "passed_over": [{"what": what, "fix": command} for what, command in passed],
    }
    lines = [
        f"{bad.kind}: {place} (owner {bad.stored.owner}): {bad.why}{', set aside' if bad.set_aside else ''}"
        for place, bad in found
    ]
    bad = f"{len(found) or 'none'} bad in {store.where}"
    lines.append(f"{units.entries(result.good)} good ({units.size(result.good_bytes)}), {bad}")
    output.answer("store-verify", facts, lines, as_json=parsed.json)
    kinds = {finding.kind for finding in result.findings}
    unread = bool(passed) or "unreadable" in kinds
    return exitcodes.VERIFY_CORRUPT * ("corrupt" in kinds) + exitcodes.VERIFY_UNREADABLE * unread


@flags.command(
    "store gc",
    """Remove whole entries until the store keeps the limits; what dead writers left behind; and, without any
limit, what pull requests left: entries of their scopes that were not useful for two weeks (--pr-age).

For space, users whom you do not trust give first, then whoever holds most, each the least recently useful entries
first. Safe beside running jobs, beside other cleanings, and on a full disk. You can remove your own entries; root can
remove all.""",
    """\
  ondol store gc                                          only what pull requests and dead writers left
  ondol store gc --max-age 30d --pr-age 3d
  ondol store gc --store /ci-cache/ondol --max-size 20GiB --min-free 10GiB
  ondol store gc --max-size 0 --dry-run                   what would go""",
)
def gc(parsed: argparse.Namespace) -> None:
    store = open_store(flags.settings(parsed))
    now = cleaning.store_clock(store) or time.time()
    of_requests = (f"{policy.UNTRUSTED_PREFIX}*", parsed.pr_age)
    limits = gc_plan.StoreLimits(parsed.max_size, parsed.max_age, parsed.min_free, of_requests)
    result = cleaning.clean(store, limits, now, dry_run=parsed.dry_run)
    gone = [{"entry": "/".join(r.stored.address), "size": r.stored.weight, "reason": r.reason} for r in result.removed]
    freed, stay = units.size(result.total_before - result.total_after), units.size(result.total_after)
    verb = "would remove" if parsed.dry_run else "removed"
    lines = [f"{verb} {units.entries(len(result.removed))} ({freed}), {stay} stay"]
    if result.leftovers:
        lines.append(f"removed {units.plural(result.leftovers, 'leftover')} of writers that died, or of old quarantine")
    if result.not_ours:
        lines.append(f"{units.size(result.not_ours)} belong to other users: they, or root, can remove them")
    facts = {**result._asdict(), "removed": gone, "dry_run": parsed.dry_run}
    output.answer("store-gc", facts, lines, as_json=parsed.json)


@flags.command(
    "store adopt",
    """Import an existing raw cache: every entry that is readable and complete. Nothing in DIR is changed.

What was left behind is listed with owner and mode: also files of users who are neither you, root nor writers of the
store, unless you vouch for them with --trust, and files with a second name elsewhere. Helper libraries
(.so) are taken to be built for this machine's C library.""",
    """\
  ondol store adopt ~/.triton/cache
  ondol store adopt /ci-cache/triton --store /ci-cache/ondol --dry-run""",
    directory={"metavar": "DIR"},
)
def adopt(parsed: argparse.Namespace) -> int:
    settings = flags.settings(parsed)
    scope = _scope(settings)
    (row,) = registry.choose([parsed.tool])
    store = open_store(settings)
    origin = {**maker.provenance(os.environ), "adopted": os.path.abspath(parsed.directory)}
    with ProgressBar() as bar:
        result = adopting.adopt(
            store,
            registry.load(row),
            parsed.directory,
            scope,
            origin,
            lambda done, total: bar("adopting", done, total),
            dry_run=parsed.dry_run,
            sign=maker.signer(settings.sign_key, {}, beside=False) if settings.sign_key else None,
        )
    facts = {"found": result.found, **result.outcome._asdict(), "problems": [p._asdict() for p in result.problems]}
    del facts["refused"]
    output.answer("store-adopt", facts, _adopted(result, store.where, dry_run=parsed.dry_run), as_json=parsed.json)
    if result.outcome.trouble:
        what, because, hint = result.outcome.trouble
        output.fail(OndolError(what, because=because, hint=hint))
        return exitcodes.STORE
    return exitcodes.OK


def _scope(settings: Settings) -> str:
    """What a job may write does not depend on the command that it writes with."""
    event = ci.read_event(os.environ, read_json, settings.trusted_jobs)
    decided = policy.scopes(settings.scope, event)
    if decided.passed_over or not decided.write:
        what = decided.passed_over or f"nothing can be adopted here: {event.system}: {event.because}"
        raise UsageError(what, hint=event.hint or "ondol store adopt off CI, or in a job of a protected branch")
    return decided.write


def _adopted(result: adopting.Adopted, where: str, *, dry_run: bool) -> Iterator[str]:
    for problem in result.problems[:_SHOWN]:
        place = f"{problem.path} (owner {problem.owner}, mode {problem.mode})"
        yield f"{problem.kind}: {place}: {problem.why}"
    if len(result.problems) > _SHOWN:
        yield f"… and {len(result.problems) - _SHOWN} more (--json lists all)"
    outcome, size = result.outcome, units.size(result.outcome.published_bytes)
    there = f", {outcome.already_there} were there already" if outcome.already_there else ""
    if dry_run:
        yield f"{units.entries(result.found)} could be adopted into {where}"
    else:
        yield f"adopted {units.entries(outcome.published)} ({size} packed) into {where}{there}"
