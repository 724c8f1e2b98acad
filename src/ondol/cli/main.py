"""`ondol COMMAND …`: finds the command, loads only that one, and turns errors into text and a status."""

from __future__ import annotations

import sys

from ondol import exitcodes

#: name → (module, one line for the overview). Modules are imported when their command is used.
COMMANDS = {
    "run": ("ondol.cli.run", "run a command with private, pre-filled compile caches"),
    "open": ("ondol.cli.open", "open a room for a job that runs in a container, or over several CI steps"),
    "close": ("ondol.cli.close", "harvest such a room, publish what is new, remove it"),
    "gc": ("ondol.cli.gc", "remove rooms that nobody closed and old journals, and say what only others can remove"),
    "test": ("ondol.cli.test", "run a pytest suite on warm, supervised workers, one or more per device"),
    "report": ("ondol.cli.report", "render the journal of a test run: JUnit, JSON, Markdown; compare two runs"),
    "history": ("ondol.cli.history", "past test runs: what is flaky, what is slow, the story of one test"),
    "guard": (
        "ondol.cli.guard",
        "run a command on a shared package cache: locked, and healed if that is at fault",
    ),
    "explain": ("ondol.cli.explain", "name the fault behind a failed log, and its cure"),
    "store": ("ondol.cli.store", "make, look at, check and clean a store; adopt an existing cache"),
    "key": ("ondol.cli.key", "keys that sign entries, and whose signatures count"),
    "tools": ("ondol.cli.tools", "which tools' caches Ondol understands, and where they are now"),
    "node": ("ondol.cli.node", "what an engine starts on a node; not for people"),
    "doctor": ("ondol.cli.doctor", "look for what will fail a job, down to the leaves; say how to mend it"),
    "completion": ("ondol.cli.completion", "let your shell complete commands, options and values"),
    "config": ("ondol.cli.config", "every setting, its value and where it came from"),
}
_OVERVIEW = """usage: ondol COMMAND …

Warm and safe CI for accelerator code: one shared, verified store of compiled kernels; every job in a room of its own.

{commands}

  ondol COMMAND --help    what a command does, with examples
  ondol --version
"""


def run() -> None:
    """The program's entry point."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    if len(argv) > 1 and argv[0] == "help":
        argv = [*argv[1:], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        return _overview(exitcodes.OK if argv else exitcodes.USAGE)
    if argv[0] in ("-V", "--version", "version"):
        from ondol import __version__
        from ondol.cli import output

        output.say(f"ondol {__version__}")
        return exitcodes.OK
    return _dispatch(argv[0], argv[1:])


def _dispatch(name: str, arguments: list[str]) -> int:
    from importlib import import_module

    from ondol.cli import output
    from ondol.errors import OndolError, StoreError, UsageError, in_ourselves

    try:
        if name not in COMMANDS:
            from ondol import words

            raise UsageError(
                f"there is no command {name!r}", hint=words.did_you_mean(name, list(COMMANDS), "ondol --help")
            )
        return int(import_module(COMMANDS[name][0]).main(arguments))
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
            from ondol.unguarded import instead

            return int(instead([name, *arguments], f"a part of Ondol is missing ({error})"))
        output.fail(OndolError(f"ondol {name} ended early: {in_ourselves(error)}"))
        return exitcodes.INTERNAL


def _beside_pytest() -> str:
    # pipx and `uv tool` keep each program in an environment of its own, where no test finds what it imports.
    parts = sys.prefix.split("/")
    if "pipx" in parts or ("uv" in parts and "tools" in parts):
        return "this Ondol has an environment of its own; install it in your project's, beside pytest, and use that one"
    return f"{sys.executable} -m pip install pytest"


def _overview(status: int) -> int:
    from ondol.cli import output

    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name.ljust(width)}  {line}" for name, (_, line) in COMMANDS.items())
    output.say_lines(_OVERVIEW.format(commands=listing).rstrip())
    return status
