"""`ondol COMMAND …`: finds the command, loads only that one, and turns errors into text and a status."""

import sys
from importlib import import_module

from ondol import __version__, exitcodes, unguarded
from ondol.cli import output
from ondol.errors import OndolError, StoreError, UsageError, did_you_mean, in_ourselves

#: name → (module and function, a line for the overview). A module is imported when its command is used.
COMMANDS = {
    "run": ("run.main", "run a command with private, pre-filled compile caches"),
    "open": ("open_close.open_command", "open a room for a job that runs in a container, or over several CI steps"),
    "close": ("open_close.close_command", "harvest such a room, publish what is new, remove it"),
    "gc": ("gc.main", "remove rooms that were never closed and old journals; list what only other users can remove"),
    "test": ("test.main", "run a pytest suite on warm, supervised workers, one or more per device"),
    "report": ("report.main", "render the journal of a test run: JUnit, JSON, Markdown; compare two runs"),
    "history": ("history.main", "past test runs: what is flaky, what is slow, the story of one test"),
    "guard": ("guard.main", "run a command on a shared package cache: locked, and healed if that is at fault"),
    "explain": ("explain.main", "name the fault behind a failed log, and its cure"),
    "store": ("", "make, look at, check and clean a store; adopt an existing cache"),
    "store init": ("store_rules.init", "make a store, and say who may publish for everybody"),
    "store writers": ("store_rules.writers", "who may publish for everybody, and in which scopes"),
    "store require-signature": ("store_rules.require_signature", "let readers use only signed entries in some scopes"),
    "store revoke": ("store_rules.revoke", "take entries back: by run, commit, owner, scope, key or name"),
    "store ls": ("store_entries.ls", "list the entries"),
    "store show": ("store_entries.show", "one entry: its files, where it came from, what it saves"),
    "store verify": ("store_entries.verify", "check every byte of every pack, set the bad ones aside"),
    "store stats": ("store_stats.main", "how much of what, from whom"),
    "store gc": ("store_entries.gc", "remove the least recently useful entries"),
    "store adopt": ("store_entries.adopt", "import an existing raw cache"),
    "key": ("key.main", "keys that sign entries, and whose signatures count"),
    "tools": ("tools.main", "which tools' caches Ondol understands, and where they are now"),
    "node": ("node.main", "what an engine starts on a node; not for people"),
    "doctor": ("doctor.main", "look for what will fail a job, down to the leaves; say how to mend it"),
    "completion": ("completion.main", "let your shell complete commands, options and values"),
    "config": ("config.main", "every setting, its value and where it came from"),
}
_OVERVIEW = """usage: ondol {group}COMMAND …

Warm and safe CI for accelerator code: one shared, verified store of compiled kernels; every job in a room of its own.

{commands}

  ondol {group}COMMAND --help    what a command does, with examples
  ondol --version"""


def run() -> None:
    """The program's entry point."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    if len(argv) > 1 and argv[0] == "help":
        argv = [*argv[1:], "--help"]
    if argv[:1] in (["-V"], ["--version"], ["version"]):
        output.say(f"ondol {__version__}")
        return exitcodes.OK
    group, words = ("store ", argv[1:]) if argv[:1] == ["store"] else ("", argv)
    if not words or words[0] in ("-h", "--help", "help"):
        return _overview(group, exitcodes.OK if words else exitcodes.USAGE)
    return _dispatch(group + words[0], words[1:])


def names(group: str = "") -> list[str]:
    """The commands, or those of `store `."""
    found = [name.removeprefix(group) for name in COMMANDS if name.startswith(group)]
    return [name for name in found if " " not in name]


def _dispatch(name: str, arguments: list[str]) -> int:
    try:
        if name not in COMMANDS:
            group = "store " if name.startswith("store ") else ""
            hint = did_you_mean(name.removeprefix(group), names(group), f"ondol {group}--help")
            raise UsageError(f"there is no command {name!r}", hint=hint)
        module, function = COMMANDS[name][0].split(".")
        return int(getattr(import_module(f"ondol.cli.{module}"), function)(arguments))
    except OndolError as error:
        output.fail(error)
        if isinstance(error, UsageError):
            return exitcodes.USAGE
        return exitcodes.STORE if isinstance(error, StoreError) else exitcodes.INTERNAL
    except KeyboardInterrupt:
        return exitcodes.from_signal(2)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "pytest":
            output.fail(UsageError(f"ondol {name} needs pytest, and {sys.executable} has none", hint=_beside_pytest()))
            return exitcodes.USAGE
        if isinstance(error, ImportError) and name == "guard":
            return int(unguarded.instead([name, *arguments], f"a part of Ondol is missing ({error})"))
        output.fail(OndolError(f"ondol {name} ended early: {in_ourselves(error)}"))
        return exitcodes.INTERNAL


def _beside_pytest() -> str:
    # pipx and `uv tool` keep each program in an environment of its own, where no test finds what it imports.
    parts = sys.prefix.split("/")
    if "pipx" in parts or ("uv" in parts and "tools" in parts):
        return "this Ondol has an environment of its own; install it in your project's, beside pytest, and use that one"
    return f"{sys.executable} -m pip install pytest"


def _overview(group: str, status: int) -> int:
    known = {name: COMMANDS[group + name][1] for name in names(group)}
    width = max(map(len, known))
    listing = "\n".join(f"  {name.ljust(width)}  {line}" for name, line in known.items())
    output.say_lines(_OVERVIEW.format(group=group, commands=listing))
    return status
