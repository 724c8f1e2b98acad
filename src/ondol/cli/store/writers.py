"""`ondol store writers list | add | remove`"""

from __future__ import annotations

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.cli.store.init import parse_writers
from ondol.errors import UsageError
from ondol.jobs.store_location import location
from ondol.store import marker

_DESCRIPTION = """Who may publish for everybody, and in which scopes.

Readers use an entry of another user only if the store names its owner for that scope. The list is replaced as a whole:
running jobs see the old one or the new one. `remove` without a scope takes all of somebody's scopes away."""
_EXAMPLES = """\
  ondol store writers list --store /ci-cache/ondol
  ondol store writers add 3001:pr-* --store /ci-cache/ondol      uid 3001 can write pull requests' scopes only
  ondol store writers add @ci:main alice --store /ci-cache/ondol
  ondol store writers remove 3001 --store /ci-cache/ondol"""


def main(arguments: list[str]) -> int:
    made = flags.parser("store writers", _DESCRIPTION, _EXAMPLES)
    made.add_argument("action", choices=("list", "add", "remove"))
    made.add_argument("who", nargs="*", metavar="WHO[:SCOPE]", help="UIDs, users, @GROUPs, any; with :SCOPE only there")
    parsed = made.parse_args(arguments)
    if bool(parsed.who) == (parsed.action == "list"):
        raise UsageError(f"`{parsed.action}` does not take {len(parsed.who)} names", hint=f"{made.prog} --help")
    path, given = location(flags.settings(parsed)), ",".join(parsed.who)

    def change(found: marker.Marker) -> marker.Marker:
        named = parse_writers(given, known=parsed.action == "remove")
        if parsed.action == "add":
            return found._replace(writers=found.writers + named)
        for word in named.words():
            if found.writers - parse_writers(word, known=True) == found.writers:
                raise UsageError(f"{word} is not among the writers of {path}", because=f"they are: {found.writers}")
        return found._replace(writers=found.writers - named)

    found = marker.look(path) if parsed.action == "list" else marker.rewrite(path, change)
    if parsed.json:
        output.say_json("store-writers", {"store": path, "writers": found.writers.words(), "said_by": found.owner})
    elif parsed.action == "list":
        output.say_lines(
            "\n".join(found.writers.words() or ["nobody named: each user reads its own entries and root's"])
        )
    else:
        output.say(f"publishing for everybody: {found.writers}")
    return exitcodes.OK
