"""Command-line flags made from the table of settings, so that flag, variable, file key and help can never drift
apart.
"""

from __future__ import annotations

import argparse
import os

from ondol import config, words
from ondol.cli import output
from ondol.errors import UsageError
from ondol.host import identity
from ondol.light import Any
from ondol.trust.settings import load

_SHORT = {"quiet": "-q", "verbose": "-v"}


class Parser(argparse.ArgumentParser):
    """Raises nothing of its own: usage errors look like all our errors and have the documented status."""

    def error(self, message: str) -> Any:
        import re

        chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        known = re.findall(r"[\w-]+", chosen[2]) if chosen else list(self._option_string_actions)
        meant = words.closest(chosen[1] if chosen else message.split()[-1], known)
        raise UsageError(message, hint=f"{meant}? {self.prog} --help" if meant else f"{self.prog} --help")


class _Switch(argparse.Action):
    def __call__(self, _: Any, found: argparse.Namespace, _values: Any, word: str | None = None) -> None:
        name, _, value = str(word).partition("=")
        setattr(found, self.dest, value or not name.startswith("--no-"))


def parser(prog: str, description: str, examples: str = "", usage: str | None = None) -> Parser:
    return Parser(
        prog=prog,
        usage=usage,
        description=description,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_settings(target: argparse.ArgumentParser, names: tuple[str, ...] | None = None) -> None:
    """Add the flags of these settings (all by default). A flag that is not given leaves no trace in the result."""
    for option in config.OPTIONS:
        if option.least == config.FILES_ONLY or (names is not None and option.name not in names):
            continue
        shorts = [_SHORT[option.name]] if option.name in _SHORT else []
        text = f"{option.help} [{option.variable}]".replace("%", "%%")
        if option.kind == "flag":
            action = argparse.BooleanOptionalAction
            target.add_argument(*shorts, f"--{option.name}", action=action, default=argparse.SUPPRESS, help=text)
        elif option.kind == "switch":
            # With its value in the same word: the word behind `--triton-autotune` is a file for pytest.
            values = [f"--{option.name}={word}" for word in config.SWITCH.split("|")]
            switch = [f"--{option.name}", f"--no-{option.name}", *values]
            target.add_argument(*switch, action=_Switch, nargs=0, default=argparse.SUPPRESS, help=text)
        else:
            target.add_argument(f"--{option.name}", metavar=option.metavar, default=argparse.SUPPRESS, help=text)


def given(parsed: argparse.Namespace) -> dict[str, Any]:
    return {option.name: getattr(parsed, option.attribute) for option in config.OPTIONS if option.attribute in parsed}


def settings(parsed: argparse.Namespace, *, told: bool = True) -> config.Settings:
    """Everything that is set. With `told`, what was wrong with files is said here; else the caller does it."""
    merged = load(given(parsed), os.environ, identity.working_directory())
    for line in [f"warning: {text}" for text in merged.warnings] + merged.remarks if told else []:
        output.tell(f"ondol: {line}")
    return merged
