"""`ondol report JOURNAL`: make the reports of a run again, also of one that was killed."""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.config import Settings
from ondol.errors import UsageError
from ondol.fleet import journals, past
from ondol.fleet.past import PastRun
from ondol.fleet.record import RunRecord, load
from ondol.report import compare, run_json, run_junit, run_markdown, run_page, run_perfetto
from ondol.test_jobs import past_runs


def renderers(before: PastRun | None) -> dict[str, Callable[[RunRecord], str]]:
    made = {"junit": run_junit.render, "json": run_json.render, "md": run_markdown.render}
    return {**made, "html": partial(run_page.render, before=before), "perfetto": run_perfetto.render}


def named(name: Path, found: Settings) -> RunRecord:
    """The run that a user means."""
    return load(journals.find(name, found.history, past_runs.believed(found)))


def earlier(name: Path, found: Settings) -> PastRun:
    return past.of_record(named(name, found))


@flags.command(
    "report",
    """Make the reports of a run again from its journal, also of one that was killed.

Exit status: 0 nothing failed, 1 something did, 121 not everything is known (a run cut off, items that were not
run).""",
    """\
  ondol report latest
  ondol report run.jsonl --junit results.xml --json results.json
  ondol report --compare nightly.jsonl latest          what broke, was mended, is slower or colder since""",
    journal={
        "type": Path,
        "nargs": "?",
        "help": "the file that the run's summary named, latest, or a name from `ondol history`",
    },
)
def main(parsed: argparse.Namespace) -> int:
    if bool(parsed.compare) == bool(parsed.journal):
        raise UsageError("name one journal, or two with --compare", hint="ondol report latest")
    found = flags.settings(parsed)
    records = [named(Path(name), found) for name in parsed.compare or [parsed.journal]]
    if parsed.compare:
        return _compare(past.of_record(records[0]), past.of_record(records[1]), parsed.json)
    known = renderers(earlier(Path(parsed.against), found) if parsed.against else None)
    if not any(getattr(parsed, name) for name in known):
        parsed.md = "-"
    for name, render in known.items():
        if getattr(parsed, name):
            _write(getattr(parsed, name), render(records[0]))
    return status_of(records[0])


def write_pages(journal: Path, before: PastRun | None, wanted: dict[str, str]) -> None:
    """After a run. A file that cannot be written costs a line, not the run's status: `ondol report` makes it again."""
    for name, render in renderers(before).items():
        if wanted.get(name) and journal.exists():
            try:
                _write(str(wanted[name]), render(load(journal)))
            except UsageError as error:
                output.tell(f"ondol: warning: {error.line()} (once more: ondol report {journal} --{name} FILE)")


def _compare(before: PastRun, after: PastRun, target: str | None) -> int:
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
