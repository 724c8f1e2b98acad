"""What `ondol doctor` found, for people and for programs."""

from typing import Any

from ondol import units
from ondol.doctor import repair
from ondol.doctor.api import NOTE, SEVERITIES, Finding
from ondol.doctor.examine import Examination, Examined
from ondol.doctor.registry import CHECKS
from ondol.doctor.repair import Repaired
from ondol.doctor.subject import CACHE, ROLES
from ondol.foreign_text import printable
from ondol.host import identity
from ondol.report import table

#: More repairs than this are counted, not listed; JSON has them all.
_MOST_LINES = 200
#: Findings that a private room for each job makes irrelevant.
_ROOM_HELPS = frozenset({"owners", "modes", "setgid", "acls", "world-writable", "file-system", "locking", "entries"})


def listing() -> str:
    rows = [(check.name, check.summary, "yes" if check.fixes else "") for check in CHECKS.values()]
    return "\n".join(table.lines(("check", "finds", "--fix"), rows))


# -- for people --------------------------------------------------------------------------------------------------


def lines(result: Examination, uid: int, repairs: list[Repaired], *, shown: bool) -> list[str]:
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


def as_json(result: Examination, uid: int, repairs: list[Repaired], *, shown: bool) -> dict[str, Any]:
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
