"""`ondol tools`"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

from ondol.cli import flags, output
from ondol.host import fixed_place, identity
from ondol.report import table as columns
from ondol.tools import registry, table
from ondol.tools.table import Row
from ondol.trust.settings import load


@flags.command(
    "tools",
    "Which tools' caches Ondol understands: where each is now, how it can be shared, what is set.",
    "  ondol tools\n  ondol tools jax triton\n  ondol tools --json",
    names={"nargs": "*", "metavar": "NAME", "help": "tell more about these"},
)
def main(parsed: argparse.Namespace) -> None:
    rows = registry.choose(parsed.names) if parsed.names else registry.everything()
    found = [_describe(row) for row in rows]
    cells = [(t["name"], t["versions"], t["class"], t["in_a_job"], _short(t["location"])) for t in found]
    lines = columns.lines(("tool", "versions", "class", "in a job", "cache now"), cells)
    if parsed.names:
        lines += [line for tool in found for line in ("", *_about(tool))]
    else:
        used = sorted({tool["class"] for tool in found})
        lines += ["", "class: " + "; ".join(f"{letter} {table.SHARING[letter]}" for letter in used)]
        lines.append("ondol tools NAME tells what is set for one, and whose value wins.")
    output.answer("tools", {"tools": found}, lines, as_json=parsed.json)


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path.startswith(home + "/") else path


def _about(tool: dict[str, Any]) -> Iterator[str]:
    yield f"{tool['name']}: {tool['summary']}"
    for name, value in tool["variables"].items():
        yield f"  {name} {'= ' + value if value else 'is not set'}"
    yield f"  under ondol run: {tool['under_run']}"
    if tool["fingerprint"]:
        yield f"  fingerprint: {tool['fingerprint']}"
    if tool["risk"]:
        yield f"  only by name (--tools {tool['name']}): {tool['risk']}"
    if tool["note"]:
        yield f"  {tool['note']}"


def _describe(row: Row) -> dict[str, Any]:
    plan = _plan(row)
    set_for_it = " ".join(f"{name}={value}" for name, value in plan.env.items())
    return {
        "name": row.name,
        "summary": row.summary,
        "versions": row.versions,
        "class": row.sharing,
        "sharing": table.SHARING[row.sharing],
        "location": table.default_location(row, os.environ),
        "variables": {name: os.environ.get(name, "") for name in row.variables},
        "managed": plan.managed,
        "unasked": row.unasked,
        "in_a_job": _in_a_job(row, plan),
        "under_run": set_for_it if plan.managed else plan.remark or "nothing is set",
        "fingerprint": row.fingerprint,
        "note": row.note,
        "risk": row.risk,
    }


def _plan(row: Row) -> table.ToolPlan:
    setting = str(load({}, os.environ, identity.working_directory()).value(row.setting)) if row.setting else ""
    return table.plan(row, os.environ, _place(row), asked=False, setting=setting)


def _in_a_job(row: Row, plan: table.ToolPlan) -> str:
    """What becomes of it under a plain `ondol run`."""
    if not row.travels:
        return "set up" if plan.managed else "left alone"
    if not row.unasked or not row.sets or row.name not in table.BY_NAME:
        return "by name"
    return "shared" if plan.managed else "yours"


def _place(row: Row) -> str:
    """Where a command will find the tool's cache."""
    if row.sharing != "C":
        return "<room>"
    apart = f"/<versions of {', '.join(row.apart)}>" if row.apart else ""
    return fixed_place.path(row.name) + apart
