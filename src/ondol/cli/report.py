"""`ondol report JOURNAL`: make the reports of a run again, also of one that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.errors import UsageError

if TYPE_CHECKING:
    from ondol.fleet.record import RunRecord


_DESCRIPTION = """Make the reports of a run again from its journal, also of one that was killed.

Exit status: 0 nothing failed, 1 something did, 121 not everything is known (a run cut off, items that were not run)."""
_EXAMPLES = """\
  ondol report latest
  ondol report run.jsonl --junit results.xml --json results.json"""


#: What both this command and `ondol test` write.
PAGES = {
    "perfetto": "write a trace for ui.perfetto.dev or chrome://tracing here",
}


def main(arguments: list[str]) -> int:
    from ondol.fleet import journals
    from ondol.fleet.record import load
    from ondol.report import run_json, run_junit, run_markdown, run_perfetto

    parser = flags.parser("ondol report", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("journal", type=Path, help="the file that the run's summary named, or latest")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML here ('-' = standard output)")
    parser.add_argument("--json", metavar="FILE", help="write JSON here")
    parser.add_argument("--md", metavar="FILE", help="write Markdown here (the default, on standard output)")
    for name, text in PAGES.items():
        parser.add_argument(f"--{name}", metavar="FILE", help=text)
    args = parser.parse_args(arguments)
    args.journal = journals.find(args.journal)
    try:
        record = load(args.journal)
    except OSError as error:
        raise UsageError(f"cannot read the journal {args.journal}", because=error.strerror or str(error))
    wanted = [(args.junit, run_junit.render), (args.json, run_json.render), (args.md, run_markdown.render)]
    wanted += [(args.perfetto, run_perfetto.render)]
    for target, render in wanted:
        if target:
            _write(target, render(record))
    if not any(target for target, _ in wanted):
        _write("-", run_markdown.render(record))
    return status_of(record)


def write_pages(journal: Path, wanted: dict[str, str | None]) -> None:
    """After a run. A file that cannot be written costs a line, not the run's status: `ondol report` makes it again."""
    from ondol.fleet.record import load
    from ondol.report import run_perfetto

    render = {"perfetto": run_perfetto.render}
    for name, target in wanted.items():
        if target and journal.exists():
            try:
                _write(target, render[name](load(journal)))
            except UsageError as error:
                output.tell(f"ondol: warning: {error.line()} (once more: ondol report {journal} --{name} FILE)")


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
