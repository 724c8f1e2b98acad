"""`ondol history`: what past test runs add up to."""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from ondol import units
from ondol.cli import flags, output
from ondol.errors import UsageError, did_you_mean
from ondol.fleet import kept, past
from ondol.fleet.past import PastRun, TestPast
from ondol.test_jobs import past_runs

#: Of the story of one test.
_STORY = 10


@flags.command(
    "history",
    """Past test runs: all of them, the flaky tests, the slow ones, or the story of one test.

A flaky rate counts the runs in which a test passed only when it was tried again, or failed between two runs in which
it passed. What is skipped or was not run does not count as a run. Runs of other users in a shared history count if
they belong to root, to somebody named by --trust, or to a writer of the store (--store).""",
    """\
  ondol history                                   the newest runs
  ondol history flaky
  ondol history slow --most 5
  ondol history tests/ops/test_add.py::test_add   or any part of a name
  ondol history flaky --history /ci-cache/ondol-history --json""",
    what={"nargs": "?", "default": "", "metavar": "flaky|slow|TEST", "help": "what to show (default: runs)"},
)
def main(parsed: argparse.Namespace) -> None:
    settings = flags.settings(parsed)
    runs, passed_over = kept.runs(settings.history, past_runs.believed(settings))
    if passed_over:
        files = units.plural(passed_over, "file")
        output.tell(f"ondol: {files} of this history ignored: damaged, or of users that you do not trust (--trust)")
    where = settings.history or kept.folder()
    tests = past.fold(runs)
    choices = {"flaky": past.flakiest, "slow": past.slowest}
    if not parsed.what:
        shown = runs[-parsed.most :]
        rows = [{**run._asdict(), "items": len(run.items), "counts": run.counts()} for run in shown]
        facts = {"where": where, "total": len(runs), "tests": len(tests), "runs": rows}
        total = f"{units.plural(len(runs), 'run')} of {units.plural(len(tests), 'test')} in {where}"
        output.answer("history", facts, [*map(_run, reversed(shown)), total], as_json=parsed.json)
        return
    story = parsed.what not in choices
    found = past.named(tests, parsed.what) if story else choices[parsed.what](tests)
    if not found and story:
        hint = did_you_mean(parsed.what, [*choices, *tests], "ondol history")
        raise UsageError(f"no run in {where} has a test whose name holds {parsed.what!r}", hint=hint)
    found = found[: parsed.most]
    facts = {"runs": len(runs), "tests": [_row(nodeid, test, story=story) for nodeid, test in found]}
    lines = [line for nodeid, test in found for line in _test(nodeid, test, story=story)]
    nothing = f"nothing in {units.plural(len(runs), 'run')}"
    output.answer("history-tests", facts, lines or [nothing], as_json=parsed.json)


def _run(run: PastRun) -> str:
    counts = ", ".join(f"{number} {name}" for name, number in run.counts().items())
    return f"{run.name}  {_when(run.began)}  {run.seconds:8.1f} s  {run.host}  {counts}"


def _test(nodeid: str, test: TestPast, *, story: bool) -> Iterator[str]:
    usual = "" if test.usual is None else f"{test.usual:.2f} s"
    flaky = f"{test.flaky_rate:.0%}"
    yield f"{flaky:>4} flaky  failed in {test.failures:4d} of {test.runs:4d} runs  {usual:>10}  {nodeid}"
    for name, began, outcome in reversed(test.story[-_STORY:]) if story else ():
        word = outcome.verdict + (", flaky" if outcome.flaky else "") + (", muted" if outcome.known else "")
        yield f"    {name}  {_when(began)}  {outcome.seconds:8.2f} s  {word}"


def _row(nodeid: str, test: TestPast, *, story: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"test": nodeid, "runs": test.runs, "failures": test.failures, "flaky": test.flaky}
    row |= {"flaky_rate": round(test.flaky_rate, 4), "usual_seconds": test.usual, "skipped": test.skipped}
    told = [{"run": name, "began": began, **outcome._asdict()} for name, began, outcome in test.story]
    return {**row, "story": told} if story else row


def _when(began: float) -> str:
    if began > sys.maxsize // 1000:
        return "?"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(began))
