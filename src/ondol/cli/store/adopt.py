"""`ondol store adopt DIR`"""

from __future__ import annotations

import os

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.config import Settings
from ondol.errors import OndolError, UsageError
from ondol.jobs import adopt, provenance, signing
from ondol.jobs.job import read_json
from ondol.jobs.open_store import open_store
from ondol.report.progress import Bar
from ondol.tools import registry
from ondol.trust import ci, policy

_DESCRIPTION = """Import an existing raw cache: every entry that is readable and complete. Nothing in DIR is changed.

What was left behind is listed with owner and mode: also files of users who are neither you, root nor writers of the
store, unless you vouch for them with --trust, and files with a second name elsewhere. Helper libraries
(.so) are taken to be built for this machine's C library."""
_EXAMPLES = """\
  ondol store adopt ~/.triton/cache
  ondol store adopt /ci-cache/triton --store /ci-cache/ondol --dry-run"""


def main(arguments: list[str]) -> int:
    made = flags.parser("store adopt", _DESCRIPTION, _EXAMPLES)
    made.add_argument("directory", metavar="DIR")
    parsed = made.parse_args(arguments)
    settings = flags.settings(parsed)
    scope = _scope(settings)
    (row,) = registry.choose([parsed.tool])
    tool = registry.load(row)
    store = open_store(settings)
    adopted = os.path.abspath(parsed.directory)
    origin = {**provenance.of_job(os.environ), "adopted": adopted}
    with Bar() as bar:
        result = adopt.adopt(
            store,
            tool,
            parsed.directory,
            scope,
            origin,
            lambda done, total: bar("adopting", done, total),
            dry_run=parsed.dry_run,
            sign=signing.signer(settings.sign_key, {}, beside=False) if settings.sign_key else None,
        )
    if parsed.json:
        _print_json(result)
    else:
        _print(result, store.where, dry_run=parsed.dry_run)
    if result.outcome.trouble:
        what, because, hint = result.outcome.trouble
        output.fail(OndolError(what, because=because, hint=hint))
        return exitcodes.STORE
    return exitcodes.OK


def _scope(settings: Settings) -> str:
    """What a job may write does not depend on the command that it writes with."""
    event = ci.read_event(os.environ, read_json, settings.trusted_jobs)
    decided = policy.scopes(settings.scope, event)
    if decided.passed_over or not decided.write:
        what = decided.passed_over or f"nothing can be adopted here: {event.system}: {event.because}"
        raise UsageError(what, hint=event.hint or "ondol store adopt off CI, or in a job of a protected branch")
    return decided.write


def _print_json(result: adopt.Adopted) -> None:
    outcome = result.outcome._asdict()
    outcome.pop("refused")
    output.say_json(
        "store-adopt", {"found": result.found, **outcome, "problems": [p._asdict() for p in result.problems]}
    )


def _print(result: adopt.Adopted, where: str, *, dry_run: bool) -> None:
    for problem in result.problems[:50]:
        place = f"{problem.path} (owner {problem.owner}, mode {problem.mode})"
        output.say(f"{problem.kind}: {place}: {problem.why}")
    if len(result.problems) > 50:
        output.say(f"… and {len(result.problems) - 50} more (--json lists all)")
    outcome = result.outcome
    if dry_run:
        output.say(f"{words.entries(result.found)} could be adopted into {where}")
        return
    there = f", {outcome.already_there} were there already" if outcome.already_there else ""
    output.say(
        f"adopted {words.entries(outcome.published)} ({words.size(outcome.published_bytes)} packed) into {where}{there}"
    )
