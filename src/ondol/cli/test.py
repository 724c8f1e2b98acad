"""`ondol test [options] ARGS`: pytest on warm, supervised workers. What is not an option of ours goes to pytest."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ondol import options
from ondol.cli import command_first, flags, output, run
from ondol.config import Settings
from ondol.errors import UsageError
from ondol.fleet import journals, starts
from ondol.jobs import run_command
from ondol.jobs.job import Job
from ondol.report.progress import ProgressBar
from ondol.test_jobs import past_runs, run_tests
from ondol.test_jobs.attempts import InJournal

_DESCRIPTION = """Run a pytest suite on warm, supervised workers, one or more per device, in a room of its own.

Collect once, fork workers from the collected session, lose no result: exactly one verdict per test, also when tests
crash or hang. Everything that is not an option below is handed to pytest: files, -k, -m, -x, --lf, -v …"""
_EXAMPLES = """\
  ondol test tests/ops                                 all devices of this machine, one worker each
  ondol test --devices 0-3 --timeout 300 tests/ops -k attention
  ondol test --devices cpu:4 tests/unit -x
  ondol test --store /ci-cache/ondol --retries 2 tests/ops --junitxml=results.xml
  ondol test --engine slurm --slurm "-p gpu -N 2 --gpus-per-node=8 -t 1:00:00" tests/ops
  ondol test --engine slurm tests/ops                  on the nodes of the job that we are in
  ondol test --engine ssh:gpu-1,gpu-2 tests/ops
  ondol test --engine podman:IMAGE tests/ops           an image with pytest and Ondol; from ondol.pyz: with pytest
  ondol test --launch 'task-submit --device auto --run {agent}' --nodes 4 tests/ops

exit status: pytest's own 0 to 5; 121 nothing failed but not everything was run; 124 --session-timeout"""


#: Option → the plugin of pytest that has it too, and how to say which one is meant.
_OF_PLUGINS_TOO = {
    "--retries": ("pytest-retry", "--ondol-retries N for attempts after a crash; -o retries=N for pytest-retry's"),
    "--html": ("pytest-html", "--ondol-html FILE for Ondol's page; PYTEST_ADDOPTS=--html=FILE for pytest-html's"),
}


def parse(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and the words that are pytest's."""
    parser = flags.parser("test", _DESCRIPTION, _EXAMPLES, usage="ondol test [options] [pytest arguments]")
    return parser.parse_known_args(_joined(words))


def _joined(words: list[str]) -> list[str]:
    """`--slurm -N2` as `--slurm=-N2`: what begins with a dash would be taken for an option of ours. And what is written
    as for pytest, `--ondol-engine`, means the same here.
    """
    made: list[str] = []
    ours = {f"--ondol-{no}{option.name}" for option in options.of("test") for no in ("", "no-")}
    for word in words:
        if "--" not in made and word.partition("=")[0] in ours:
            made.append(word.replace("ondol-", "", 1))
        elif made and made[-1] in {"--slurm", "--srun"} and "--" not in made:
            made[-1] += f"={word}"
        else:
            made.append(word)
    return made


def to_pytest(settings: Settings) -> list[str]:
    """What is set here, as the plugin spells it. The rest is left to pytest's ini file."""
    said: list[str] = []
    for option in options.IN_PYTEST:
        value = settings.value(option.name)
        if settings.origin(option.name) == "default":
            continue
        if option.kind == "flag":
            said.append(f"--ondol-{option.name}" if value else f"--ondol-no-{option.name}")
        else:
            said += [f"--ondol-{option.name}={one}" for one in (value if isinstance(value, list) else [value])]
    return said


def main(arguments: list[str]) -> int:
    ours, theirs = parse(arguments)
    if find_spec("pytest") is None:  # said before anything is opened or started
        raise ModuleNotFoundError(name="pytest")
    typed = {word.split("=")[0] for word in arguments}
    for word, (plugin, hint) in _OF_PLUGINS_TOO.items():
        if word in typed and find_spec(plugin.replace("-", "_")):
            what = f"{word} is an option of Ondol and of {plugin}, which is installed; nothing was run"
            raise UsageError(what, hint=hint)
    settings = flags.settings(ours, told=False)
    journal = Path(settings.journal or journals.new_path())
    ours_to_say = [f"--ondol-journal={journal}"] if not settings.journal else []
    # An empty specification: this is a run of ours, and what it runs on is left to the ini file.
    ours_to_say += ["--ondol-devices="] if not settings.devices else []
    request = run_tests.Request([*ours_to_say, *to_pytest(settings), *theirs], journal, settings.collect_timeout)
    pages = _pages(journal, settings)
    keep = partial(_keep, journal, settings.history)
    if settings.engine != "local" or settings.launch:
        from ondol.test_jobs import run_node

        flags.tell(settings)
        # Rooms are per node, where the workers are; there is none here.
        told = starts.as_environment(starts.ForNodes(run_node.for_nodes(settings, os.environ)))
        status = run_tests.run(request, {**os.environ, **told})
        command_first.afterwards(pages, keep)
        return status
    if settings.store and run.can_ask():
        run.offer_store(settings)
    with ProgressBar(enabled=not settings.quiet) as bar:
        spans, python = InJournal(journal).spans, sys.executable
        job = Job(["pytest", *theirs], settings, os.environ, bar, program=python, cut_off=spans)
        status = run_command.run(job, partial(run_tests.run, request))
    noted = partial(run_tests.note_room, journal, status, job.report)
    command_first.afterwards(lambda: run.tell_report(job.report, settings), noted, pages, keep)
    return status


def _pages(journal: Path, settings: Settings) -> Callable[[], None]:
    """What writes them after the run. Most runs want none, and need not wait for the modules that make them."""
    wanted = {name: settings.value(name) for name in ("html", "perfetto")}
    if not any(wanted.values()) and not settings.against:
        return lambda: None
    from ondol.cli import report

    try:
        # Looked for before the run: afterwards this one is the latest. The first run of all has none.
        earlier = report.earlier(Path(settings.against), settings) if settings.against else None
    except UsageError as error:
        if settings.against != journals.LATEST:
            raise
        output.tell(f"ondol: warning: --against latest: {error.line()}")
        earlier = None
    return partial(report.write_pages, journal, earlier, wanted)


def _keep(journal: Path, history: str) -> None:
    if trouble := past_runs.keep(journal, history):
        output.tell(f"ondol: warning: {trouble}")
