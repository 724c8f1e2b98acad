"""`ondol report JOURNAL`: make the reports of a run again, also of one that was killed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ondol import exitcodes

if TYPE_CHECKING:
    from ondol.report.run_record import RunRecord


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("report", help="render the journal of a run: JUnit, JSON, Markdown")
    _add_arguments(parser)
    parser.set_defaults(main=main)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("journal", type=Path, help="the file that the run's summary named")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML here ('-' = standard output)")
    parser.add_argument("--json", metavar="FILE", help="write JSON here")
    parser.add_argument("--md", metavar="FILE", help="write Markdown here (the default, on standard output)")


def main(args: argparse.Namespace | list[str]) -> int:
    """Takes the command's own words, or what `add_parser`'s parser made of them.

    0 when nothing failed, 1 when something did, `INCOMPLETE` when somebody must look again.
    """
    from ondol.report import run_json, run_junit, run_markdown
    from ondol.report.run_record import load

    if isinstance(args, list):
        parser = argparse.ArgumentParser(prog="ondol report", description=__doc__)
        _add_arguments(parser)
        args = parser.parse_args(args)
    record = load(args.journal)
    wanted = ((args.junit, run_junit.render), (args.json, run_json.render), (args.md, run_markdown.render))
    for target, render in wanted:
        if target:
            _write(target, render(record))
    if not any(target for target, _ in wanted):
        _write("-", run_markdown.render(record))
    return status_of(record)


def status_of(record: RunRecord) -> int:
    if record.bad:
        return 1
    counts = record.counts()
    unknown = counts.get("not-run", 0) + counts.get("device-lost", 0)
    return exitcodes.OK if record.complete and not unknown and record.items else exitcodes.INCOMPLETE


def _write(target: str, text: str) -> None:
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
