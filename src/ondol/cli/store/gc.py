"""`ondol store gc`"""

from __future__ import annotations

import time

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.jobs.open_store import open_store
from ondol.store import gc, gc_plan
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
    parsed = flags.parser("store gc", _DESCRIPTION, _EXAMPLES).parse_args(arguments)
    store = open_store(flags.settings(parsed))
    now = gc.store_clock(store) or time.time()
    of_requests = (f"{policy.UNTRUSTED_PREFIX}*", parsed.pr_age)
    limits = gc_plan.StoreLimits(parsed.max_size, parsed.max_age, parsed.min_free, of_requests)
    result = gc.clean(store, limits, now, dry_run=parsed.dry_run)
    if parsed.json:
        removed = [
            {"entry": "/".join(r.stored.address), "size": r.stored.weight, "reason": r.reason} for r in result.removed
        ]
        output.say_json("store-gc", {**result._asdict(), "removed": removed, "dry_run": parsed.dry_run})
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
