"""`ondol history`: what past test runs add up to."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.errors import UsageError

if TYPE_CHECKING:
    from ondol.fleet.past import PastRun, TestPast

_DESCRIPTION = """Past test runs: all of them, the flaky tests, the slow ones, or the story of one test.

A flaky rate counts the runs in which a test passed only when it was tried again, or failed between two runs in which
it passed. What is skipped or was not run does not count as a run. Runs of other users in a shared history count if
they belong to root, to somebody named by --trust, or to a writer of the store (--store)."""
_EXAMPLES = """\
  ondol history                                   the newest runs
  ondol history flaky
  ondol history slow --most 5
  ondol history tests/ops/test_add.py::test_add   or any part of a name
  ondol history flaky --history /ci-cache/ondol-history --json"""
#: Of the story of one test.
_STORY = 10


def main(arguments: list[str]) -> int:
    from ondol.fleet import kept, past
    from ondol.jobs import past_runs

    parser = flags.parser("history", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("what", nargs="?", default="", metavar="flaky|slow|TEST", help="what to show (default: runs)")
    parsed = parser.parse_args(arguments)
    settings = flags.settings(parsed)
    runs, passed_over = kept.runs(settings.history, past_runs.believed(settings))
    if passed_over:
        files = words.plural(passed_over, "file")
        output.tell(f"ondol: {files} of this history passed over: damaged, or of users that you do not trust (--trust)")
    where = settings.history or kept.folder()
    tests = past.fold(runs)
    choices = {"flaky": past.flakiest, "slow": past.slowest}
    if not parsed.what:
        _show_runs(runs[-parsed.most :], len(runs), len(tests), where, as_json=parsed.json)
        return exitcodes.OK
    found = choices[parsed.what](tests) if parsed.what in choices else past.named(tests, parsed.what)
    if not found and parsed.what not in choices:
        hint = words.did_you_mean(parsed.what, [*choices, *tests], "ondol history")
        raise UsageError(f"no run in {where} has a test whose name holds {parsed.what!r}", hint=hint)
    _show_tests(found[: parsed.most], len(runs), as_json=parsed.json, story=parsed.what not in choices)
    return exitcodes.OK


def _show_runs(runs: list[PastRun], total: int, tests: int, where: str, *, as_json: bool) -> None:
    if as_json:
        rows = [{**run._asdict(), "items": len(run.items), "counts": run.counts()} for run in runs]
        output.say_json("history", {"where": where, "total": total, "tests": tests, "runs": rows})
        return
    for run in reversed(runs):
        counts = ", ".join(f"{number} {name}" for name, number in run.counts().items())
        output.say(f"{run.name}  {_when(run.began)}  {run.seconds:8.1f} s  {run.host}  {counts}")
    output.say(f"{words.plural(total, 'run')} of {words.plural(tests, 'test')} in {where}")


def _show_tests(found: list[tuple[str, TestPast]], runs: int, *, as_json: bool, story: bool) -> None:
    if as_json:
        rows = [_row(nodeid, test, story=story) for nodeid, test in found]
        output.say_json("history-tests", {"runs": runs, "tests": rows})
        return
    for nodeid, test in found:
        usual = "" if test.usual is None else f"{test.usual:.2f} s"
        flaky = f"{test.flaky_rate:.0%}"
        output.say(f"{flaky:>4} flaky  {test.failures:4d} failed of {test.runs:4d} runs  {usual:>10}  {nodeid}")
        for name, began, outcome in reversed(test.story[-_STORY:]) if story else ():
            word = outcome.verdict + (", flaky" if outcome.flaky else "") + (", muted" if outcome.known else "")
            output.say(f"    {name}  {_when(began)}  {outcome.seconds:8.2f} s  {word}")
    if not found:
        output.say(f"nothing in {words.plural(runs, 'run')}")


def _row(nodeid: str, test: TestPast, *, story: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"test": nodeid, "runs": test.runs, "failures": test.failures, "flaky": test.flaky}
    row |= {"flaky_rate": round(test.flaky_rate, 4), "usual_seconds": test.usual, "skipped": test.skipped}
    told = [{"run": name, "began": began, **outcome._asdict()} for name, began, outcome in test.story]
    return {**row, "story": told} if story else row


def _when(began: float) -> str:
    if began > sys.maxsize // 1000:
        return "?"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(began))
