"""`ondol doctor`, and what it found, for people and for programs."""

import argparse
import os
from typing import Any

from ondol import exitcodes, units
from ondol.cli import flags, output
from ondol.config import Settings
from ondol.doctor import gather, registry, repair
from ondol.doctor.api import ERROR, NOTE, SEVERITIES, WARNING, Finding
from ondol.doctor.examine import Examination, Examined, examine
from ondol.doctor.repair import Repaired
from ondol.doctor.subject import CACHE, ROLES, Machine, the_machine
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
    machine = _machine(settings, patience or _TOUCH)
    bounds = Bounds(parsed.limit, parsed.walk_time)

    def look(bar: ProgressBar) -> Examination:
        subjects = gather.subjects(machine, parsed.paths, bounds, patience or _TOUCH)
        if not parsed.paths:
            subjects.append(the_machine(machine))
        return examine(subjects, checks, bar, patience)

    with ProgressBar() as bar:
        result = look(bar)
        repairs = [Repaired(change) for finding in result.findings for change in finding.repairs]
        if parsed.fix and not parsed.dry_run and repairs:
            repairs = repair.carry_out([one.repair for one in repairs])
            result = look(bar)  # what counts is what is left
    shown = parsed.dry_run or parsed.fix
    facts = _as_json(result, machine.uid, repairs, shown=shown)
    lines = _lines(result, machine.uid, repairs, shown=shown)
    output.answer("doctor", facts, lines, as_json=parsed.json)
    failing = result.number_of(ERROR) + (result.number_of(WARNING) if parsed.strict else 0)
    return exitcodes.DOCTOR_FOUND if failing else exitcodes.OK


def _machine(settings: Settings, seconds: float) -> Machine:
    groups = frozenset([os.getegid(), *os.getgroups()])
    room_dir = os.path.abspath(settings.room_dir) if settings.room_dir else ""
    judge = open_store.judge(settings.trust)
    where = _store(settings, seconds)
    trusted = tuple(settings.trust)
    who = (os.geteuid(), os.getegid(), groups)
    return Machine(os.environ, *who, where, bool(settings.store), judge, trusted, room_dir)


def _store(settings: Settings, seconds: float) -> str:
    if settings.store:
        return open_store.location(settings)
    try:
        # Where the user's own store would be depends on whether HOME is writable, and HOME may be on a dead server.
        return str(bounded.call(lambda _report: open_store.default_location(), seconds))
    except OndolError:
        return ""


# -- for people --------------------------------------------------------------------------------------------------


def _lines(result: Examination, uid: int, repairs: list[Repaired], *, shown: bool) -> list[str]:
    """`shown`: whether to list the repairs."""
    text = [f"ondol doctor on {identity.hostname()} as uid {uid}"]
    for one in result.examined:
        text += ["", _subject(one)]
        text += [line for finding in one.findings for line in _finding(finding)] or ["  nothing wrong"]
    counted = [units.plural(result.number_of(severity), severity) for severity in SEVERITIES]
    mending = _repairs(repairs) if shown else []
    return [*text, "", *mending, f"{', '.join(counted)}.", *_advice(result, [] if shown else repairs)]


def _repairs(repairs: list[Repaired]) -> list[str]:
    if not repairs:
        return ["nothing that --fix could do", ""]
    rest = len(repairs) - _MOST_LINES
    more = [f"… and {rest} more (--json lists all)"] if rest > 0 else []
    return [*map(_repaired, repairs[:_MOST_LINES]), *more, ""]


def _repaired(one: Repaired) -> str:
    command = printable(repair.as_command(one.repair))
    if one.refused:
        return f"left alone: {command}: {one.refused}"
    return f"done: {command}" if one.done else f"would do: {command}"


def _advice(result: Examination, repairs: list[Repaired]) -> list[str]:
    advice = []
    if repairs:
        number = units.plural(len(repairs), "thing")
        advice.append(f"{number} can be mended without asking anybody: ondol doctor --fix --dry-run shows them.")
    found = [finding for one in result.examined if CACHE in one.roles for finding in one.findings]
    if any(finding.check in _ROOM_HELPS and finding.severity != NOTE for finding in found):
        advice.append("`ondol run` gives each job a cache of its own: owners, modes and locks do not matter there.")
    return advice


def _subject(one: Examined) -> str:
    if not one.path:
        return "this machine"
    facts = [ROLES[role] for role in one.roles]
    if one.tool:
        facts.append(f"{one.tool}'s")
    if one.state == "missing":
        facts.append("not there")
    if one.file_system:
        facts.append(one.file_system)
    if one.entries >= 0:
        facts.append(f"{one.entries} files and directories, {units.size(one.size)}")
    return f"{printable(one.path)}: {', '.join(facts)}"


def _finding(finding: Finding) -> list[str]:
    place, others = finding.where, finding.places - 1
    where = printable(place.path)
    where += f" (owner {place.owner}, group {place.group}, mode {place.mode})" if place.mode else ""
    where += f", and {others} more" if others > 0 else ""
    text = [
        f"  {finding.severity.upper()} {finding.check}: {printable(finding.what)}",
        f"    where  {where}",
    ]
    text.append(f"    why    {printable(finding.why)}")
    return [*text, f"    fix    {printable(finding.fix)}"] if finding.fix else text


# -- for programs ------------------------------------------------------------------------------------------------


def _as_json(result: Examination, uid: int, repairs: list[Repaired], *, shown: bool) -> dict[str, Any]:
    """docs/reference/doctor.md describes every field."""
    counts = {f"{severity}s": result.number_of(severity) for severity in SEVERITIES}
    return {
        "host": identity.hostname(),
        "uid": uid,
        "healthy": not counts["errors"],
        **counts,
        "examined": [_examined_json(one) for one in result.examined],
        "findings": [_finding_json(one, finding) for one in result.examined for finding in one.findings],
        "repairs": [_repair_json(one) for one in repairs] if shown else [],
    }


def _examined_json(one: Examined) -> dict[str, Any]:
    fields = one._asdict()
    fields.pop("findings")
    return {**fields, "roles": list(one.roles)}


def _finding_json(one: Examined, finding: Finding) -> dict[str, Any]:
    fields = {"subject": one.path, "check": finding.check, **finding._asdict(), "where": finding.where._asdict()}
    repairs = fields.pop("repairs")
    return {**fields, "safe": bool(repairs)}


def _repair_json(one: Repaired) -> dict[str, Any]:
    command = repair.as_command(one.repair)
    told = {"action": one.repair.action, "path": one.repair.path, "command": command}
    return {**told, "done": one.done, "refused": one.refused}
