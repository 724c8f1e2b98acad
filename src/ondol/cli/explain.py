"""`ondol explain [LOG …]`"""

import argparse
import sys

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.errors import UsageError
from ondol.explain import text
from ondol.explain.explainer import Explanation
from ondol.explain.log_file import open_log
from ondol.explain.signature import load

#: Of a known fault, for programs.
_TOLD = ("id", "number", "tool", "kind", "heals", "warning", "meaning", "cure", "source")


@flags.command(
    "explain",
    """Name the fault behind a failed log, once, however many tests it took down, and what to do about it.

Reads what pytest or any other program printed, under any CI system's timestamps and colours, and JUnit XML; plain or
gzip. Without LOG, or with `-`, standard input. Exit status: 0 a known fault explains a failure, 1 none does.""",
    """\
  ondol explain nightly.log
  ondol explain shard-*.xml --all             every test by name
  gh run view --log-failed | ondol explain
  ondol explain --list                        every fault that is known""",
    logs={"metavar": "LOG", "nargs": "*", "help": "a log, a JUnit file, either of them with gzip, or -"},
)
def main(parsed: argparse.Namespace) -> int:
    if parsed.list:
        facts = [{name: getattr(known, name) for name in _TOLD} for known in load()]
        width = max(len(known.id) for known in load())
        lines = [
            f"{one.id.ljust(width)}  {one.kind.ljust(7)}  {one.meaning.partition('. ')[0].rstrip('.')}"
            for one in load()
        ]
        output.answer("faults", {"faults": facts}, lines, as_json=parsed.json)
        return exitcodes.OK
    if parsed.logs.count("-") > 1:
        raise UsageError("standard input can be read only once", hint="ondol explain --help")
    if not parsed.logs and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("there is no log to explain", hint="ondol explain LOG, or pipe one into it")
    explanation = _read(parsed.logs or ["-"])
    lines = text.text(explanation, every_name=parsed.all).split("\n")
    output.answer("explain", text.as_json(explanation), lines, as_json=parsed.json)
    return exitcodes.OK if explanation.faults else exitcodes.NOTHING_KNOWN


def _read(logs: list[str]) -> Explanation:
    explanation = Explanation(load())
    for path in logs:
        with open_log(path, sys.stdin.buffer) as log:
            shown = "stdin" if path == "-" else path
            explanation.add(shown, log, f"{shown}: " if len(logs) > 1 else "")
    return explanation
