"""`ondol config`"""

from __future__ import annotations

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.config import BY_NAME, Option
from ondol.report import table

_DESCRIPTION = """Show every setting, its value and where it came from.

The command line beats the environment (ONDOL_*) beats the file: the nearest ondol.toml, or pyproject.toml with a
[tool.ondol] table, in this directory or above it, up to the top of the checkout."""
_EXAMPLES = """\
  ondol config
  ONDOL_STORE=/ci-cache/ondol ondol config --json"""


def main(arguments: list[str]) -> int:
    parser = flags.parser("ondol config", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    flags.add_settings(parser, tuple(name for name in BY_NAME if name != "json"))
    parsed = parser.parse_args(arguments)
    rows = flags.settings(parsed).rows()
    if parsed.as_json:
        output.say_json({option.name: value._asdict() for option, value in rows})
        return exitcodes.OK
    shown = [(option.name, _show(option, value.value), value.origin) for option, value in rows]
    output.say_lines(table.render(("setting", "value", "from"), shown))
    return exitcodes.OK


def _show(option: Option, value: object) -> str:
    from ondol import words

    if option.name == "store" and not value:
        from ondol.jobs import store_location

        return store_location.default()
    if option.kind == "size" and isinstance(value, int):
        return words.size(value)
    if option.kind == "duration" and isinstance(value, float):
        return words.seconds(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value) or "-"
