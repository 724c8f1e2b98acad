"""`ondol store init PATH`"""

from __future__ import annotations

import argparse
import os

from ondol import exitcodes
from ondol.cli import output
from ondol.cli.store import parser
from ondol.errors import StoreError, UsageError
from ondol.store import marker

_DESCRIPTION = """Make a store at PATH.

Any user may add entries, in a lane of their own. Whose entries are used by *others* is said here, once: without
--writers a reader uses its own and root's only. The list is believed by readers who trust the owner of the store:
root, themselves, or a UID they name with --trust."""
_EXAMPLES = """\
  ondol store init /ci-cache/ondol --writers 1000,1001
  ondol store init /ci-cache/ondol --writers @ci          all members of the group ci
  ondol store init ~/shared --writers any                 everybody trusts everybody: single-tenant machines only"""


def main(arguments: list[str]) -> int:
    made = parser("init", _DESCRIPTION, _EXAMPLES, settings=())
    made.add_argument("path", metavar="PATH")
    made.add_argument("--writers", metavar="UID,…|@GROUP|any", default="", help="who may publish for everybody")
    parsed = made.parse_args(arguments)
    path = os.path.abspath(parsed.path)
    writers = _writers(parsed)
    try:
        created = marker.create(path, writers, shared=True)
    except OSError as error:
        raise StoreError(
            f"cannot make a store at {path}",
            because=error.strerror or str(error),
            hint="name a directory you can write",
        )
    if not created:
        raise StoreError(
            f"there is a store at {path} already",
            note="nothing was changed",
            hint=f"ondol store stats --store {path}; to change its writers, edit {path}/{marker.NAME}",
        )
    if parsed.as_json:
        output.say_json({"store": path, "writers": writers._asdict()})
    else:
        output.say(f"store made at {path}; publishing for everybody: {writers}")
    return exitcodes.OK


def _writers(parsed: argparse.Namespace) -> marker.Writers:
    try:
        return marker.parse_writers(parsed.writers)
    except ValueError as error:
        raise UsageError(
            f"--writers: {error.args[0]!r} is neither a UID nor a @GROUP", hint="such as 1000,1001,@ci or any"
        )
