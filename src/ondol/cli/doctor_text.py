"""What `ondol doctor` found, for people and for programs."""

from __future__ import annotations

from typing import Any

from ondol import words
from ondol.doctor import repair
from ondol.doctor.api import SEVERITIES, Finding, Location, Repair
from ondol.doctor.examine import Examination, Examined
from ondol.doctor.registry import CHECKS
from ondol.doctor.subject import CACHE, ROLES
from ondol.host import identity
from ondol.report import table

#: More repairs than this are counted, not listed; JSON has them all.
_MOST_LINES = 200
#: Findings that a private room for each job makes irrelevant.
_ROOM_HELPS = frozenset({"owners", "modes", "setgid", "acls", "world-writable", "file-system", "locking", "entries"})


def listing() -> str:
    rows = [(check.name, check.summary, "yes" if check.fixes else "") for check in CHECKS.values()]
    return "\n".join(table.lines(("check", "finds", "--fix"), rows))


class Report:
    def __init__(
        self, result: Examination, uid: int, repairs: list[Repair], done: list[repair.Repaired] | None, *, shown: bool
    ) -> None:
        """`done`: what became of the repairs, or None if they were not carried out; `shown`: whether to list them."""
        self._result, self._uid = result, uid
        self._repairs, self._done, self._shown = repairs, done, shown

    # -- for people ----------------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        result = [f"ondol doctor on {identity.hostname()} as uid {self._uid}"]
        for one in self._result.examined:
            result += ["", _subject(one)]
            result += [line for finding in one.findings for line in _finding(finding)] or ["  nothing wrong"]
        return [*result, "", *self._repair_lines(), self._summary(), *self._advice()]

    def _repair_lines(self) -> list[str]:
        if not self._shown:
            return []
        if not self._repairs:
            return ["nothing that --fix could do", ""]
        if self._done is None:
            result = [f"would do: {words.printable(repair.as_command(one))}" for one in self._repairs]
        else:
            result = [_done(one) for one in self._done]
        rest = len(result) - _MOST_LINES
        return [*result[:_MOST_LINES], *([f"… and {rest} more (--json lists all)"] if rest > 0 else []), ""]

    def _summary(self) -> str:
        counted = [words.plural(self._result.number_of(severity), severity) for severity in SEVERITIES]
        return f"{', '.join(counted)}."

    def _advice(self) -> list[str]:
        result = []
        if not self._shown and self._repairs:
            number = words.plural(len(self._repairs), "thing")
            result.append(f"{number} can be mended without asking anybody: ondol doctor --fix --dry-run shows them.")
        found = [finding for one in self._result.examined if CACHE in one.roles for finding in one.findings]
        if any(finding.check in _ROOM_HELPS and finding.severity != "note" for finding in found):
            result.append("`ondol run` gives each job a cache of its own: owners, modes and locks do not matter there.")
        return result

    # -- for programs --------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """docs/reference/doctor.md describes every field."""
        counts = {f"{severity}s": self._result.number_of(severity) for severity in SEVERITIES}
        return {
            "host": identity.hostname(),
            "uid": self._uid,
            "healthy": not counts["errors"],
            **counts,
            "examined": [_examined_json(one) for one in self._result.examined],
            "findings": [_finding_json(one, finding) for one in self._result.examined for finding in one.findings],
            "repairs": self._repairs_json() if self._shown else [],
        }

    def _repairs_json(self) -> list[dict[str, Any]]:
        if self._done is None:
            return [_repair_json(one, done=False, refused="") for one in self._repairs]
        return [_repair_json(one.repair, done=not one.refused, refused=one.refused) for one in self._done]


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
        facts.append(f"{one.entries} files and directories, {words.size(one.size)}")
    return f"{words.printable(one.path)}: {', '.join(facts)}"


def _finding(finding: Finding) -> list[str]:
    lines = [f"  {finding.severity.upper()} {finding.check}: {words.printable(finding.what)}"]
    lines.append(f"    where  {_place(finding.where)}{_more(finding.places - 1)}")
    lines.append(f"    why    {words.printable(finding.why)}")
    if finding.fix:
        lines.append(f"    fix    {words.printable(finding.fix)}")
    return lines


def _place(where: Location) -> str:
    path = words.printable(where.path)
    return f"{path} (owner {where.owner}, group {where.group}, mode {where.mode})" if where.mode else path


def _more(number: int) -> str:
    return f", and {number} more" if number > 0 else ""


def _done(one: repair.Repaired) -> str:
    command = words.printable(repair.as_command(one.repair))
    return f"left alone: {command}: {one.refused}" if one.refused else f"done: {command}"


def _examined_json(one: Examined) -> dict[str, Any]:
    fields = one._asdict()
    fields.pop("findings")
    return {**fields, "roles": list(one.roles)}


def _finding_json(one: Examined, finding: Finding) -> dict[str, Any]:
    fields = finding._asdict()
    fields.pop("repairs")
    return {"subject": one.path, **fields, "where": finding.where._asdict(), "safe": finding.safe}


def _repair_json(one: Repair, *, done: bool, refused: str) -> dict[str, Any]:
    command = repair.as_command(one)
    return {"action": one.action, "path": one.path, "command": command, "done": done, "refused": refused}
