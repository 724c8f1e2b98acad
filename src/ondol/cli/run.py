"""`ondol run [options] -- COMMAND …`"""

import os
from collections.abc import Callable
from typing import Any

from ondol.cli import command_first, flags, output
from ondol.config import Settings
from ondol.errors import OndolError, UsageError
from ondol.job_report import JobReport

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
    given, command = parse(arguments)
    if not command:
        raise UsageError("no command to run", hint="ondol run [options] -- COMMAND …")
    must = bool(given.get("strict") or given.get("require-warm"))
    secret = str(given.get("sign-key") or os.environ.get("ONDOL_SIGN_KEY", ""))
    return command_first.or_plainly(command, lambda: _prepared(given, command), forbidden=must, secret=secret)


def _prepared(given: dict[str, Any], command: list[str]) -> Callable[[], int]:
    from ondol.host import command as running
    from ondol.host import identity
    from ondol.jobs import run_command
    from ondol.jobs.job import Job
    from ondol.report.progress import ProgressBar
    from ondol.trust.settings import load

    settings = load(given, os.environ, identity.working_directory())
    running.hold_standard_descriptors()
    if settings.store and can_ask():
        offer_store(settings)
    bar = ProgressBar(enabled=not settings.quiet)
    job = Job(command, settings, os.environ, bar)

    def run() -> int:
        status = run_command.run(job)
        command_first.afterwards(bar.close, lambda: tell_report(job.report, settings))
        return status

    return run


def parse(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """(settings given, the command). The command starts after `--`, or at the first word that is not an option."""
    made = flags.parser("run", _DESCRIPTION, _EXAMPLES, usage="ondol run [options] -- COMMAND …")
    made.add_argument("words", nargs="...", metavar="COMMAND …", help="the command, with its own options")
    parsed = made.parse_args(arguments)
    return flags.given(parsed), parsed.words[parsed.words[:1] == ["--"] :]


def tell_report(report: JobReport, settings: Settings) -> None:
    """Say what a job did: to the user, to the file they named, to the CI page."""
    from ondol.report import terminal

    if settings.json and (trouble := output.write_json(report.as_dict(), settings.json)):
        report.warn(trouble)
    if trouble := terminal.append_step_summary(terminal.step_summary(report), os.environ):
        report.warn(trouble)
    quiet, verbose = settings.quiet, settings.verbose
    for line in terminal.lines(report, quiet=quiet, verbose=verbose, require_warm=settings.require_warm):
        output.tell(line)


#: A store on a dead server is looked for no longer than this; the job says so later, in its own words.
_LOOK_SECONDS = 5.0


def offer_store(settings: Settings) -> None:
    """Offers to make the store that somebody at a terminal has named and that is not there yet. Everybody else, a job
    on CI above all, runs cold and is told what to type.
    """
    from ondol.host import bounded
    from ondol.jobs import open_store
    from ondol.jobs.open_store import location
    from ondol.store import marker
    from ondol.trust import ci

    if settings.quiet or ci.on_ci(os.environ):
        return
    path = location(settings)
    try:
        if bounded.call(lambda _report: os.path.lexists(path), _LOOK_SECONDS):
            return
        question = f"ondol: no store at {path}. Make one, as `ondol store init` does? [y/N]"
        if output.ask(question) not in ("y", "yes"):
            return
        bounded.call(lambda _report: open_store.make(path, marker.Writers(), shared=True), _LOOK_SECONDS)
    except (OndolError, OSError) as error:
        output.tell(f"ondol: no store was made: {error}")
    else:
        output.tell(f"ondol: store made at {path}; to let other users publish: ondol store writers --help")


def can_ask() -> bool:
    """Whether there is a person at both ends, and the terminal is ours: in the background, reading stops a process."""
    try:
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
