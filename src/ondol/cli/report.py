"""`ondol report JOURNAL`: make the reports of a run again, also of one that was killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.errors import UsageError

if TYPE_CHECKING:
    from ondol.config import Settings
    from ondol.fleet.past import PastRun
    from ondol.fleet.record import RunRecord


_DESCRIPTION = """Make the reports of a run again from its journal, also of one that was killed.

Exit status: 0 nothing failed, 1 something did, 121 not everything is known (a run cut off, items that were not run)."""
_EXAMPLES = """\
  ondol report latest
  ondol report run.jsonl --junit results.xml --json results.json
  ondol report --compare nightly.jsonl latest          what broke, was mended, is slower or colder since"""


#: What both this command and `ondol test` write.
PAGES = ("html", "perfetto")


def renderers(before: PastRun | None) -> dict[str, Callable[[RunRecord], str]]:
    from ondol.report import run_json, run_junit, run_markdown, run_page, run_perfetto

    made = {"junit": run_junit.render, "json": run_json.render, "md": run_markdown.render}
    return {**made, "html": partial(run_page.render, before=before), "perfetto": run_perfetto.render}


def named(name: Path, found: Settings) -> RunRecord:
    """The run that a user means."""
    from ondol.fleet import journals
    from ondol.fleet.record import load
    from ondol.jobs import past_runs

    return load(journals.find(name, found.history, past_runs.believed(found)))


def main(arguments: list[str]) -> int:
    from ondol.fleet import past

    parser = flags.parser("report", _DESCRIPTION, _EXAMPLES)
    text = "the file that the run's summary named, latest, or a name from `ondol history`"
    parser.add_argument("journal", type=Path, nargs="?", help=text)
    args = parser.parse_args(arguments)
    if bool(args.compare) == bool(args.journal):
        raise UsageError("name one journal, or two with --compare", hint="ondol report latest")
    found = flags.settings(args)
    records = [named(Path(name), found) for name in args.compare or [args.journal]]
    if args.compare:
        return _compare(past.of_record(records[0]), past.of_record(records[1]), args.json)
    known = renderers(past.of_record(named(Path(args.against), found)) if args.against else None)
    if not any(getattr(args, name) for name in known):
        args.md = "-"
    for name, render in known.items():
        if getattr(args, name):
            _write(getattr(args, name), render(records[0]))
    return status_of(records[0])


def write_pages(journal: Path, before: PastRun | None, wanted: dict[str, str]) -> None:
    """After a run. A file that cannot be written costs a line, not the run's status: `ondol report` makes it again."""
    from ondol.fleet.record import load

    for name, render in renderers(before).items():
        if wanted.get(name) and journal.exists():
            try:
                _write(str(wanted[name]), render(load(journal)))
            except UsageError as error:
                output.tell(f"ondol: warning: {error.line()} (once more: ondol report {journal} --{name} FILE)")


def _compare(before: PastRun, after: PastRun, target: str | None) -> int:
    from ondol.report import compare

    found = compare.compare(before, after)
    if target:
        _write(target, json.dumps({"format": "ondol-compare/1", **found._asdict()}, indent=1))
    else:
        for line in compare.lines(found):
            output.say(line)
    return 1 if found.new_failures else exitcodes.OK


def status_of(record: RunRecord) -> int:
    if record.bad:
        return 1
    return exitcodes.OK if record.complete and not record.unknown and record.items else exitcodes.INCOMPLETE


def _write(target: str, text: str) -> None:
    if target == "-":
        output.data(text.rstrip("\n"))
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}", because=error.strerror or str(error))
