"""`ondol explain [LOG …]`"""

import argparse
import sys

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.errors import UsageError
from ondol.explain import text
from ondol.explain.explainer import Explainer, Explanation
from ondol.explain.log_file import open_log
from ondol.explain.signature import load

_DESCRIPTION = """Name the fault behind a failed log, once, however many tests it took down, and what to do about it.

Reads what pytest or any other program printed, under any CI system's timestamps and colours, and JUnit XML; plain or
gzip. Without LOG, or with `-`, standard input. Exit status: 0 a known fault explains a failure, 1 none does."""
_EXAMPLES = """\
  ondol explain nightly.log
  ondol explain shard-*.xml --all             every test by name
  gh run view --log-failed | ondol explain
  ondol explain --list                        every fault that is known"""


def main(arguments: list[str]) -> int:
    parser = flags.parser("explain", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("logs", metavar="LOG", nargs="*", help="a log, a JUnit file, either of them with gzip, or -")
    parsed = parser.parse_args(arguments)
    if parsed.list:
        return _list(parsed)
    explanation = _read(_logs(parsed.logs))
    if parsed.json:
        output.say_json("explain", text.as_json(explanation))
    else:
        output.say_lines(text.text(explanation, every_name=parsed.all))
    return exitcodes.OK if explanation.faults else exitcodes.NOTHING_KNOWN


def _logs(given: list[str]) -> list[str]:
    if given.count("-") > 1:
        raise UsageError("standard input can be read only once", hint="ondol explain --help")
    if not given and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("there is no log to explain", hint="ondol explain LOG, or pipe one into it")
    return given or ["-"]


def _read(logs: list[str]) -> Explanation:
    explainer = Explainer(load())
    for path in logs:
        with open_log(path, sys.stdin.buffer) as log:
            shown = "stdin" if path == "-" else path
            explainer.add(shown, log, f"{shown}: " if len(logs) > 1 else "")
    return explainer.result()


def _list(parsed: argparse.Namespace) -> int:
    fields = ("id", "number", "tool", "kind", "heals", "warning", "meaning", "cure", "source")
    if parsed.json:
        output.say_json("faults", {"faults": [{name: getattr(known, name) for name in fields} for known in load()]})
        return exitcodes.OK
    width = max(len(known.id) for known in load())
    for known in load():
        output.say(f"{known.id.ljust(width)}  {known.kind.ljust(7)}  {known.meaning.partition('. ')[0].rstrip('.')}")
    return exitcodes.OK
