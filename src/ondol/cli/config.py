"""`ondol config`"""

import argparse
import os

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.config import SITE_FILE, USER_FILE
from ondol.errors import UsageError
from ondol.jobs import open_store, strategy
from ondol.report import table


@flags.command(
    "config",
    f"""Show every setting, its value, where it came from, and what it concerns: convenience or trust. Then
what a job would do here: where its room is, which store and scopes it reads, what it publishes, which caches it takes
over, and why.

The command line beats the environment (ONDOL_*) beats files: the nearest ondol.toml, or pyproject.toml with a
[tool.ondol] table, in this directory or above it up to the top of the checkout; then {USER_FILE}; then
{SITE_FILE}. On CI a checkout's file says nothing about trust. Exit status 2 if a file cannot be used.""",
    """\
  ondol config
  ONDOL_STORE=/ci-cache/ondol ondol config --json""",
)
def main(parsed: argparse.Namespace) -> int:
    settings = flags.settings(parsed, told=False)
    rows = settings.rows()
    if not settings.store:  # whose default has no fixed place
        place = open_store.default_location()
        rows = [(option, v._replace(value=place) if option.name == "store" else v) for option, v in rows]
    job = strategy.strategy(settings, os.environ)
    told = {option.name: {**value._asdict(), "class": option.sort} for option, value in rows}
    shown = [(option.name, option.show(value.value) or "-", value.origin, option.sort) for option, value in rows]
    lines = [*table.lines(("setting", "value", "from", "class"), shown), ""]
    lines += table.lines(("a job here", "does", "because"), job)
    facts = {"settings": told, "job": [line._asdict() for line in job]}
    output.answer("config", facts, lines, as_json=parsed.json)
    for remark in settings.remarks:
        output.tell(f"ondol: {remark}")
    for warning in settings.warnings:
        output.fail(UsageError(warning))
    return exitcodes.USAGE if settings.warnings else exitcodes.OK
