"""`ondol close [ROOM] --status N`"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from ondol.cli import command_first, flags, output
from ondol.cli.open import write_github
from ondol.cli.run import tell_report
from ondol.errors import UsageError
from ondol.jobs.open_close import STATUS_WORDS, close_room
from ondol.report.progress import Bar
from ondol.room.room import VARIABLE

_DESCRIPTION = """Harvest a room that `ondol open` opened, publish what is new if the rules allow it, remove the room.

The settings are those of `ondol open`, except what is given here; the CI event must be the same. What the job left in
the room decides nothing. Exit status: the given one, if it is a number (then 122 and 123 as with `ondol run`); a room
that is not there is a warning."""
_EXAMPLES = """\
  ondol close --status $?                                   the room of $ONDOL_ROOM
  ondol close "$(cat room)" --status $? --json ondol.json
  ondol close "$room" --status ${{ job.status }}            a CI system's word: success, failure, cancelled
  sudo ondol close "$room" --status 0 --trust 3001          publish also what uid 3001 made in it"""


def main(arguments: list[str]) -> int:
    parser = flags.parser("close", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("room", nargs="?", metavar="ROOM", help=f"the room (default: {VARIABLE})")
    parsed = parser.parse_args(arguments)
    if parsed.status is None:
        raise UsageError("--status is missing", hint=f"--status N, a number, or one of {', '.join(STATUS_WORDS)}")
    room = parsed.room if parsed.room is not None else os.environ.get(VARIABLE, "")
    if not room and parsed.room is None:
        raise UsageError("no room to close", because=f"{VARIABLE} is not set", hint="ondol close ROOM --status N")
    # Only from this command line: a step of the job could have set any ONDOL_ variable for the steps after it.
    given = flags.given(parsed)
    with Bar(enabled=not given.get("quiet", False)) as bar:
        closed = close_room(room, parsed.status, given, os.environ, bar)
    _undo(parsed.format, closed.env_before)
    command_first.afterwards(lambda: tell_report(closed.report, closed.settings))
    return closed.status


def _undo(form: str | None, before: Mapping[str, str | None]) -> None:
    """TMPDIR must not lead to a directory that is gone, for whatever still runs after us."""
    if form == "env":
        for name, value in before.items():
            output.data(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")
    elif form == "github":
        # A variable of a GitHub job cannot be taken back; an empty one is the next best thing.
        write_github({name: value or "" for name, value in before.items()}, {})
