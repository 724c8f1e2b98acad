"""`ondol tools`"""

from __future__ import annotations

import os

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.light import Any
from ondol.report import table
from ondol.tools.api import SHARING, Tool
from ondol.tools.registry import TOOLS

_DESCRIPTION = "Which tools' caches Ondol understands: where each is now, how it can be shared, what is set."
_EXAMPLES = "  ondol tools\n  ondol tools --json"


def main(arguments: list[str]) -> int:
    parser = flags.parser("ondol tools", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parsed = parser.parse_args(arguments)
    found = [_describe(tool) for tool in TOOLS.values()]
    if parsed.json:
        output.say_json(found)
        return exitcodes.OK
    rows = [(tool["name"], tool["versions"], f"{tool['class']}: {tool['sharing']}", tool["location"]) for tool in found]
    output.say(table.render(("tool", "versions", "sharing", "cache now"), rows))
    for tool in found:
        output.say(f"\n{tool['name']}: {tool['summary']}")
        for name, value in tool["variables"].items():
            output.say(f"  {name} {'= ' + value if value else 'is not set'}")
        output.say(f"  under ondol run: {tool['under_run']}")
    return exitcodes.OK


def _describe(tool: Tool) -> dict[str, Any]:
    plan = tool.plan(os.environ, "<room>", asked=False)
    return {
        "name": tool.name,
        "summary": tool.summary,
        "versions": tool.versions,
        "class": tool.sharing,
        "sharing": SHARING[tool.sharing],
        "location": tool.default_location(os.environ),
        "variables": {name: os.environ.get(name, "") for name in tool.variables},
        "managed": plan.managed,
        "under_run": " ".join(f"{name}={value}" for name, value in plan.env.items()) if plan.managed else plan.remark,
    }
