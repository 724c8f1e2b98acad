"""`ondol store init PATH`"""

from __future__ import annotations

import os

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.errors import StoreError, UsageError
from ondol.jobs import open_store
from ondol.store import marker

_DESCRIPTION = """Make a store at PATH.

Any user may add entries, in a lane of their own. Whose entries *others* use is decided here, once: without
--writers a reader uses its own and root's only. The list is believed by readers who trust the owner of the store:
root, themselves, or a UID they name with --trust."""
_EXAMPLES = """\
  ondol store init /ci-cache/ondol --writers 1000,alice
  ondol store init /ci-cache/ondol --writers @ci          all members of the group ci
  ondol store init /ci-cache/ondol --writers 1000,3001:pr-* --require-signature main
                                                          uid 3001, who runs pull requests, can write their scopes only
  ondol store init ~/shared --writers any                 everybody trusts everybody: single-tenant machines only"""


def main(arguments: list[str]) -> int:
    made = flags.parser("store init", _DESCRIPTION, _EXAMPLES)
    made.add_argument("path", metavar="PATH")
    parsed = made.parse_args(arguments)
    path = os.path.abspath(parsed.path)
    writers, signed = parse_writers(parsed.writers), parse_scopes(parsed.require_signature)
    if not open_store.make(path, writers, shared=True, signed=signed):
        raise StoreError(
            f"there is a store at {path} already",
            note="nothing was changed",
            hint=f"ondol store stats --store {path}; to change its writers: ondol store writers --help",
        )
    if parsed.json:
        output.say_json("store-init", {"store": path, "writers": writers._asdict()})
    else:
        output.say(f"store made at {path}; publishing for everybody: {writers}")
    return exitcodes.OK


def parse_writers(text: str, *, known: bool = False) -> marker.Writers:
    try:
        return marker.parse_writers(text, known=known)
    except ValueError as error:
        raise UsageError(
            f"writers: {error.args[0]!r} {error.args[1]}",
            note="nothing was changed",
            hint="such as 1000,alice,@ci,3001:pr-* or any",
        )


def parse_scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    for scope in scopes:
        if not words.is_pattern(scope):
            raise UsageError(f"{scope!r} is no scope", note="nothing was changed", hint="such as main or pr-*")
    return scopes
