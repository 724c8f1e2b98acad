"""`ondol store SUBCOMMAND …`: make, look at, check and clean a store; adopt an existing cache."""

from __future__ import annotations

from ondol import exitcodes
from ondol.cli import output
from ondol.errors import UsageError

SUBCOMMANDS = {
    "init": "make a store, and say who may publish for everybody",
    "writers": "who may publish for everybody, and in which scopes",
    "require-signature": "let readers use only signed entries in some scopes",
    "revoke": "take entries back: by run, commit, owner, scope, key or name",
    "ls": "list the entries",
    "show": "one entry: its files, where it came from, what it saves",
    "verify": "check every byte of every pack, set the bad ones aside",
    "stats": "how much of what, from whom",
    "gc": "remove the least recently useful entries",
    "adopt": "import an existing raw cache",
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        output.say_lines("usage: ondol store SUBCOMMAND …\n")
        for name, line in SUBCOMMANDS.items():
            output.say(f"  {name.ljust(19)}{line}")
        output.say_lines("\n  ondol store SUBCOMMAND --help    what it does, with examples")
        return exitcodes.OK if arguments else exitcodes.USAGE
    name = arguments[0]
    if name not in SUBCOMMANDS:
        from ondol import words

        hint = words.did_you_mean(name, list(SUBCOMMANDS), "ondol store --help")
        raise UsageError(f"there is no `ondol store {name}`", hint=hint)
    from importlib import import_module

    return int(import_module(f"ondol.cli.store.{name.replace('-', '_')}").main(arguments[1:]))
