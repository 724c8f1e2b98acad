"""`ondol store gc`"""

from __future__ import annotations

import argparse
import time

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.cli.store import parser
from ondol.errors import UsageError
from ondol.jobs.open_store import open_store
from ondol.store import clean, gc_plan
from ondol.trust import policy

_DESCRIPTION = """Remove whole entries until the store keeps the limits; what dead writers left behind; and, without any
limit, what pull requests left: entries of their scopes that were not useful for two weeks (--pr-age).

For space, users whom you do not trust give first, then whoever holds most, each the least recently useful entries
first. Safe beside running jobs, beside other cleanings, and on a full disk. You can remove your own entries; root can
remove all."""
_EXAMPLES = """\
  ondol store gc                                          only what pull requests and dead writers left
  ondol store gc --max-age 30d --pr-age 3d
  ondol store gc --store /ci-cache/ondol --max-size 20GiB --min-free 10GiB
  ondol store gc --max-size 0 --dry-run                   what would go"""


def main(arguments: list[str]) -> int:
    made = parser("gc", _DESCRIPTION, _EXAMPLES)
    made.add_argument("--max-size", metavar="SIZE", help="the store's packs together are at most this large")
    made.add_argument("--max-age", metavar="TIME", help="remove what was not useful for this long")
    made.add_argument("--min-free", metavar="SIZE", help="leave at least this much free on its file system")
    made.add_argument(
        "--pr-age", metavar="TIME", default="14d", help="the same for pull requests' entries (default: 14d)"
    )
    made.add_argument("--dry-run", action="store_true", help="say what would be removed, remove nothing")
    parsed = made.parse_args(arguments)
    store = open_store(flags.settings(parsed))
    now = clean.store_clock(store) or time.time()
    result = clean.clean(store, _limits(parsed), now, dry_run=parsed.dry_run)
    if parsed.as_json:
        removed = [
            {"entry": "/".join(r.stored.address), "size": r.stored.weight, "reason": r.reason} for r in result.removed
        ]
        output.say_json({**result._asdict(), "removed": removed, "dry_run": parsed.dry_run})
        return exitcodes.OK
    verb = "would remove" if parsed.dry_run else "removed"
    freed = result.total_before - result.total_after
    output.say(
        f"{verb} {words.entries(len(result.removed))} ({words.size(freed)}), {words.size(result.total_after)} stay"
    )
    if result.leftovers:
        output.say(f"removed {words.plural(result.leftovers, 'leftover')} of writers that died, or of old quarantine")
    if result.not_ours:
        output.say(f"{words.size(result.not_ours)} belong to other users: they, or root, can remove them")
    return exitcodes.OK


def _limits(parsed: argparse.Namespace) -> gc_plan.Limits:
    try:
        return gc_plan.Limits(
            words.parse_size(parsed.max_size) if parsed.max_size is not None else None,
            words.parse_duration(parsed.max_age) if parsed.max_age is not None else None,
            words.parse_size(parsed.min_free) if parsed.min_free is not None else None,
            (f"{policy.UNTRUSTED_PREFIX}*", words.parse_duration(parsed.pr_age)),
        )
    except ValueError as error:
        raise UsageError(f"a limit cannot be used: {error}", hint="sizes such as 20GiB, times such as 30d")
