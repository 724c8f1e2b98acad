"""`ondol test [options] ARGS`: pytest on warm, supervised workers. What is not an option of ours goes to pytest."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ondol.cli import command_first, first_store, flags, output, report, run
from ondol.config import Settings
from ondol.errors import UsageError
from ondol.fleet import journals, past
from ondol.fleet.options import OPTIONS, Option, destination
from ondol.fleet.past import PastRun
from ondol.fleet.starts import ForNodes
from ondol.jobs import node_settings, past_runs, run_command, run_tests
from ondol.jobs.attempts import InJournal
from ondol.jobs.job import Job
from ondol.report.progress import Bar

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
#: The cache wing's settings that make sense on this command line; the others come from ONDOL_* and the file.
_SETTINGS = (
    "store",
    "tools",
    "scope",
    "publish",
    "room-dir",
    "keep-room",
    "require-warm",
    "frozen",
    "trust",
    "sign-key",
    "triton-autotune",
    "tilelang-autotune",
    "helion-autotune",
)


def parse(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and the words that are pytest's."""
    parser = flags.parser("ondol test", _DESCRIPTION, _EXAMPLES, usage="ondol test [options] [pytest arguments]")
    for option in OPTIONS:
        parser.add_argument(f"--{option.name}", dest=destination(option), help=option.help, **option.kwargs)
    report.add_pages(parser, "ondol-")
    flags.add_settings(parser, _SETTINGS)
    return parser.parse_known_args(_joined(words))


def _joined(words: list[str]) -> list[str]:
    """`--slurm -N2` as `--slurm=-N2`: what begins with a dash would be taken for an option of ours."""
    made: list[str] = []
    for word in words:
        if made and made[-1] in {"--slurm", "--srun"} and "--" not in made:
            made[-1] += f"={word}"
        else:
            made.append(word)
    return made


def to_pytest(option: Option, value: object) -> list[str]:
    """The option as the plugin spells it; nothing when it has its default."""
    if value == option.kwargs.get("default"):
        return []
    if value is True:
        return [f"--ondol-{option.name}"]
    values = value if isinstance(value, list) else [value]
    return [f"--ondol-{option.name}={one}" for one in values]


def main(arguments: list[str]) -> int:
    ours, theirs = parse(arguments)
    if find_spec("pytest") is None:  # said before anything is opened or started
        raise ModuleNotFoundError(name="pytest")
    typed = {word.split("=")[0] for word in arguments}
    if "--html" in typed and find_spec("pytest_html"):
        raise UsageError(
            "--html is an option of Ondol and of pytest-html, which is installed; nothing was run",
            hint="--ondol-html FILE for Ondol's page; PYTEST_ADDOPTS=--html=FILE for pytest-html's",
        )
    if "--retries" in typed and find_spec("pytest_retry"):
        raise UsageError(
            "--retries is an option of Ondol and of pytest-retry, which is installed; nothing was run",
            hint="--ondol-retries N for attempts after a crash; -o retries=N for pytest-retry's",
        )
    journal = Path(ours.ondol_journal or journals.new_path())
    ours.ondol_journal = str(journal)
    ours.ondol_devices = ours.ondol_devices or ""  # the ini file may name them; else: auto
    far = ours.ondol_engine != "local" or bool(ours.ondol_launch)
    settings = flags.settings(ours, told=far)
    ours.ondol_history = os.path.abspath(ours.ondol_history) if ours.ondol_history else settings.history
    words = [word for option in OPTIONS for word in to_pytest(option, getattr(ours, destination(option)))]
    request = run_tests.Request([*words, *theirs], journal, ours.ondol_collect_timeout)
    pages = partial(report.write_pages, journal, _earlier(ours.against, settings), vars(ours))
    keep = partial(_keep, journal, ours.ondol_history)
    if far:
        # Rooms are per node, where the workers are; there is none here.
        told = ForNodes(node_settings.for_nodes(settings, os.environ))
        status = run_tests.run(request, {**os.environ, **told.environment()})
        command_first.afterwards(pages, keep)
        return status
    first_store.offer(settings)
    with Bar(enabled=not settings.quiet) as bar:
        spans, python = InJournal(journal).spans, sys.executable
        job = Job(["pytest", *theirs], settings, os.environ, bar, program=python, cut_off=spans)
        status = run_command.run(job, partial(run_tests.run, request))
    noted = partial(run_tests.note_room, journal, status, job.report)
    command_first.afterwards(lambda: run.tell_report(job.report, settings), noted, pages, keep)
    return status


def _earlier(name: str | None, settings: Settings) -> PastRun | None:
    """Looked for before the run: afterwards this one is the latest. The first run of all has none."""
    try:
        return past.of_record(report.named(Path(name), settings)) if name else None
    except UsageError as error:
        if name != journals.LATEST:
            raise
        output.tell(f"ondol: warning: --against latest: {error.line()}")
        return None


def _keep(journal: Path, history: str) -> None:
    if trouble := past_runs.keep(journal, history):
        output.tell(f"ondol: warning: {trouble}")
