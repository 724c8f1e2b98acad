"""`ondol run [options] -- COMMAND …`"""

from __future__ import annotations

import os

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.config import Settings
from ondol.errors import UsageError
from ondol.events import JobReport

_DESCRIPTION = """Run a command with private, writable, pre-filled compile caches; publish what it compiled.

Streams, terminal, signals and exit status are the command's own. Trouble with the store never fails it: the job is
colder, and one warning says why and what to type."""
_EXAMPLES = """\
  ondol run -- pytest tests/ops
  ondol run --store /ci-cache/ondol --tools triton -- python bench.py
  ondol run --frozen --require-warm -- python perf.py     fail if anything had to be compiled
  ondol run --publish never -- make test                  read the store, write nothing
  ondol run --json ondol.json -v -- pytest                more words, and a file for programs

exit status: the command's own; 122 not warm (--require-warm), 123 cache trouble (--strict), 126 not executable, 127
not found"""


def main(arguments: list[str]) -> int:
    own, command = _split(arguments)
    parser = flags.parser("ondol run", _DESCRIPTION, _EXAMPLES, usage="ondol run [options] -- COMMAND …")
    flags.add_settings(parser)
    if "-h" in own or "--help" in own:
        output.say(parser.format_help().rstrip())
        return exitcodes.OK
    settings = flags.settings(parser.parse_args(own))
    if not command:
        raise UsageError("no command to run", hint="ondol run [options] -- COMMAND …")

    from ondol.jobs.run_command import Job
    from ondol.report.progress import Bar

    with Bar(enabled=not settings.quiet) as bar:
        job = Job(command, settings, os.environ, bar)
        status = job.run()
    _report(job.report, settings)
    return status


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Everything after the first `--` is the command's. Without one, the command starts at the first word that is not
    ours.
    """
    if "--" in arguments:
        middle = arguments.index("--")
        return arguments[:middle], arguments[middle + 1 :]
    from ondol.config import BY_NAME

    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        name = arguments[position].removeprefix("--")
        takes_value = name in BY_NAME and BY_NAME[name].kind != "flag"
        position += 2 if takes_value else 1
    return arguments[:position], arguments[position:]


def _report(report: JobReport, settings: Settings) -> None:
    from ondol.report import terminal

    if settings.json:
        _write_json(report, settings.json)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        _append_step_summary(report, summary)
    quiet, verbose = settings.quiet, settings.verbose
    for line in terminal.lines(report, quiet=quiet, verbose=verbose, require_warm=settings.require_warm):
        output.tell(line)


def _write_json(report: JobReport, path: str) -> None:
    import json

    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report.as_dict(), file, indent=2)
            file.write("\n")
    except OSError as error:
        report.warn(f"the report could not be written to {path}: {error.strerror} (fix: name another --json file)")


def _append_step_summary(report: JobReport, path: str) -> None:
    from ondol.report import github

    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(github.markdown(report))
    except OSError as error:
        report.warn(f"the step summary could not be written to {path}: {error.strerror}")
