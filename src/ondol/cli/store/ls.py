"""`ondol store ls`"""

from __future__ import annotations

import time

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.jobs.open_store import open_store
from ondol.report import table

_DESCRIPTION = """List the entries of a store, newest first.

`*` marks those of users that you do not trust: they are never used by your jobs."""
_EXAMPLES = """\
  ondol store ls
  ondol store ls --store /ci-cache/ondol --tool triton --json"""


def main(arguments: list[str]) -> int:
    made = flags.parser("store ls", _DESCRIPTION, _EXAMPLES)
    parsed = made.parse_args(arguments)
    store = open_store(flags.settings(parsed))
    found = [
        stored
        for stored in store.everything()
        if parsed.tool in ("", stored.address.tool) and parsed.in_scope in ("", stored.address.scope)
    ]
    found.sort(key=lambda stored: (-stored.published, stored.address))
    if parsed.json:
        entries = [{**s.address._asdict(), **s._asdict(), "address": "/".join(s.address)} for s in found]
        output.say_json("store-ls", {"entries": entries})
        return exitcodes.OK
    now = time.time()
    rows = [
        (
            s.address.key + ("" if s.trusted else " *"),
            s.address.tool,
            s.address.scope,
            s.address.fingerprint,
            words.size(s.size),
            words.age(now - s.published),
            str(s.owner),
        )
        for s in found
    ]
    if rows:
        output.say_lines(
            table.render(("key", "tool", "scope", "fingerprint", "packed", "age", "owner"), rows, right=(4, 5, 6))
        )
    output.tell(f"{words.entries(len(found))} in {store.where}")
    return exitcodes.OK
