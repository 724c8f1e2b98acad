"""`ondol doctor`, and what it found, for people and for programs."""

import argparse
import os
from collections import Counter
from typing import Any

from ondol import exitcodes, units
from ondol.cli import flags, output
from ondol.config import Settings
from ondol.doctor import gather, registry, repair
from ondol.doctor.api import ERROR, NOTE, SEVERITIES, WARNING, Finding, Repair
from ondol.doctor.examine import examine
from ondol.doctor.subject import CACHE, ROLES, Machine, Subject, the_machine
from ondol.doctor.walk import Bounds
from ondol.errors import OndolError
from ondol.foreign_text import printable
from ondol.host import bounded, identity
from ondol.jobs import open_store
from ondol.report import table
from ondol.report.progress import ProgressBar

#: A first look that takes longer than this is taken for a dead file server.
_TOUCH = gather.TOUCH_SECONDS
#: More repairs than this are counted, not listed; JSON has them all.
_MOST_LINES = 200
#: Findings that a private room for each job makes irrelevant.
_ROOM_HELPS = frozenset({"owners", "modes", "setgid", "acls", "world-writable", "file-system", "locking", "entries"})


@flags.command(
    "doctor",
    """Look for what will fail a job, before a job finds out: in directories down to the leaves, by really
trying what jobs do there, and on the machine itself. Each finding says what, where, why it hurts, and what to type.

Without PATH: the store, the tools' caches, HOME, TMPDIR, the places for a room, and the machine. With PATH: these
directories only. Nothing is changed without --fix, and then only the caller's own files.

Exit status: 0 nothing wrong, or only warnings and notes; 1 errors (with --strict also warnings); 2 wrong usage.""",
    """\
  ondol doctor                                    what a job of this user would meet
  ondol doctor /ci-cache/triton                   one directory, to the leaves
  ondol doctor /ci-cache/triton --fix --dry-run   what could be mended without asking anybody
  ondol doctor --strict --json > doctor.json      as a step before the tests
  ondol doctor --list                             every check""",
    paths={"metavar": "PATH", "nargs": "*", "help": "directories to look at (default: what a job would use)"},
)
def main(parsed: argparse.Namespace) -> int:
    if parsed.list:
        rows = [(check.name, check.summary, "yes" if check.fixes else "") for check in registry.CHECKS.values()]
        output.say_lines("\n".join(table.lines(("check", "finds", "--fix"), rows)))
        return exitcodes.OK
    checks = registry.choose(parsed.only, parsed.skip)
    settings = flags.settings(parsed)
    patience = parsed.timeout
    groups = frozenset([os.getegid(), *os.getgroups()])
    room_dir = os.path.abspath(settings.room_dir) if settings.room_dir else ""
    who = (os.geteuid(), os.getegid(), groups, _store(settings, patience or _TOUCH), bool(settings.store))
    machine = Machine(os.environ, *who, open_store.judge(settings.trust), tuple(settings.trust), room_dir)
    bounds = Bounds(parsed.limit, parsed.walk_time)

    def look(bar: ProgressBar) -> list[Subject]:
        subjects = gather.subjects(machine, parsed.paths, bounds, patience or _TOUCH)
        if not parsed.paths:
            subjects.append(the_machine(machine))
        return examine(subjects, checks, bar, patience)

    with ProgressBar() as bar:
        result = look(bar)
        repairs = [change for one in result for finding in one.findings for change in finding.repairs]
        if parsed.fix and not parsed.dry_run and repairs:
            repairs = repair.carry_out(repairs)
            result = look(bar)  # what counts is what is left
    shown = parsed.dry_run or parsed.fix
    counts = Counter(finding.severity for one in result for finding in one.findings)
    facts = _as_json(result, counts, machine.uid, repairs if shown else [])
    lines = _lines(result, counts, machine.uid, repairs, shown=shown)
    output.answer("doctor", facts, lines, as_json=parsed.json)
    failing = counts[ERROR] + (counts[WARNING] if parsed.strict else 0)
    return exitcodes.DOCTOR_FOUND if failing else exitcodes.OK


def _store(settings: Settings, seconds: float) -> str:
    if settings.store:
        return open_store.location(settings)
    try:
        # Where the user's own store would be depends on whether HOME is writable, and HOME may be on a dead server.
        return str(bounded.call(lambda _report: open_store.default_location(), seconds))
    except OndolError:
        return ""


# -- for people --------------------------------------------------------------------------------------------------


def _lines(result: list[Subject], counts: Counter[str], uid: int, repairs: list[Repair], *, shown: bool) -> list[str]:
    """`shown`: whether to list the repairs."""
    text = [f"ondol doctor on {identity.hostname()} as uid {uid}"]
    for one in result:
        text += ["", _subject(one)]
        text += [line for finding in one.findings for line in _finding(finding)] or ["  nothing wrong"]
    counted = [units.plural(counts[severity], severity) for severity in SEVERITIES]
    mending = _repairs(repairs) if shown else []
    return [*text, "", *mending, f"{', '.join(counted)}.", *_advice(result, [] if shown else repairs)]


def _repairs(repairs: list[Repair]) -> list[str]:
    if not repairs:
        return ["nothing that --fix could do", ""]
    rest = len(repairs) - _MOST_LINES
    more = [f"… and {rest} more (--json lists all)"] if rest > 0 else []
    return [*map(_repaired, repairs[:_MOST_LINES]), *more, ""]


def _repaired(one: Repair) -> str:
    command = printable(repair.as_command(one))
    if one.refused:
        return f"left alone: {command}: {one.refused}"
    return f"done: {command}" if one.done else f"would do: {command}"


def _advice(result: list[Subject], repairs: list[Repair]) -> list[str]:
    advice = []
    if repairs:
        number = units.plural(len(repairs), "thing")
        advice.append(f"--fix can mend {number}: ondol doctor --fix --dry-run shows what it would do.")
    found = [finding for one in result if CACHE in one.roles for finding in one.findings]
    if any(finding.check in _ROOM_HELPS and finding.severity != NOTE for finding in found):
        advice.append("`ondol run` gives each job a cache of its own: owners, modes and locks do not matter there.")
    return advice


def _subject(one: Subject) -> str:
    if not one.path:
        return "this machine"
    facts = [ROLES[role] for role in sorted(one.roles)]
    if one.tool:
        facts.append(f"{one.tool.name}'s")
    if one.state.kind == "missing":
        facts.append("not there")
    if one.state.kind == "directory":
        facts.append(one.mount.kind)
    if one.tree:
        facts.append(f"{len(one.tree.entries)} files and directories, {units.size(one.tree.size())}")
    return f"{printable(one.path)}: {', '.join(facts)}"


def _finding(finding: Finding) -> list[str]:
    place, others = finding.where, finding.places - 1
    where = printable(place.path)
    where += f" (owner {place.owner}, group {place.group}, mode {place.mode})" if place.mode else ""
    where += f", and {others} more" if others > 0 else ""
    text = [
        f"  {finding.severity.upper()} {finding.check}: {printable(finding.what)}",
        f"    where  {where}",
        f"    why    {printable(finding.why)}",
    ]
    return [*text, f"    fix    {printable(finding.fix)}"] if finding.fix else text


# -- for programs ------------------------------------------------------------------------------------------------


def _as_json(result: list[Subject], counts: Counter[str], uid: int, repairs: list[Repair]) -> dict[str, Any]:
    """docs/reference/doctor.md describes every field."""
    return {
        "host": identity.hostname(),
        "uid": uid,
        "healthy": not counts[ERROR],
        **{f"{severity}s": counts[severity] for severity in SEVERITIES},
        "examined": [_examined_json(one) for one in result],
        "findings": [_finding_json(one, finding) for one in result for finding in one.findings],
        "repairs": [
            {"action": one.action, "path": one.path, "command": repair.as_command(one)}
            | {"done": one.done, "refused": one.refused}
            for one in repairs
        ],
    }


def _examined_json(one: Subject) -> dict[str, Any]:
    """-1 where nothing was walked."""
    return {
        "path": one.path,
        "roles": sorted(one.roles),
        "state": one.state.kind,
        "tool": one.tool.name if one.tool else "",
        "file_system": one.mount.kind if one.path and one.state.kind == "directory" else "",
        "entries": len(one.tree.entries) if one.tree else -1,
        "size": one.tree.size() if one.tree else -1,
        "stopped": one.tree.stopped if one.tree else "",
    }


def _finding_json(one: Subject, finding: Finding) -> dict[str, Any]:
    fields = {"subject": one.path, "check": finding.check, **finding._asdict(), "where": finding.where._asdict()}
    repairs = fields.pop("repairs")
    return {**fields, "safe": bool(repairs)}
