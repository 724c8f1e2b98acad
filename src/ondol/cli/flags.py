"""The command line of every command, made from the table of options."""

import argparse
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ondol import config, exitcodes, options
from ondol.cli import output
from ondol.errors import UsageError, did_you_mean
from ondol.host import identity
from ondol.options import Option
from ondol.trust.settings import load

Body = Callable[[argparse.Namespace], int | None]
Group = argparse._ActionsContainer


class Parser(argparse.ArgumentParser):
    """Raises nothing of its own: usage errors look like all our errors and have the documented status."""

    def error(self, message: str) -> Any:
        chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        odd = chosen or re.search(r"(--?\w[\w-]*)", message)
        known = re.findall(r"[\w-]+", chosen[2]) if chosen else list(self._option_string_actions)
        option = options.BY_NAME.get(odd[1].lstrip("-")) if odd else None
        if option and option.least == options.FILES_ONLY:
            raise UsageError(message, hint=f"it can stand in {config.USER_FILE} or {config.SITE_FILE} only")
        raise UsageError(message, hint=did_you_mean(odd[1] if odd else "", known, f"{self.prog} --help"))


class _Switch(argparse.Action):
    def __call__(self, _: Any, found: argparse.Namespace, _values: Any, word: str | None = None) -> None:
        name, _, value = str(word).partition("=")
        setattr(found, self.dest, value or not name.startswith("--no-"))


class _List(argparse.Action):
    """May be repeated."""

    def __call__(self, _: Any, found: argparse.Namespace, text: Any, word: str | None = None) -> None:
        more = [part for part in str(text).split(",") if part.strip()]
        if not more:
            raise UsageError(f"{word} {text!r} names nothing", hint="names, separated by commas")
        setattr(found, self.dest, [*getattr(found, self.dest, []), *more])


def parser(command: str, description: str, examples: str = "", usage: str | None = None) -> Parser:
    """With everything that `ondol COMMAND` takes, except for words that are no options."""
    made = Parser(
        prog=f"ondol {command}",
        usage=usage,
        description=description,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.set_defaults(of=command)
    group: Group = made
    for option in options.of(command):
        if command == "test" and option.name in options.GROUPS:
            group = made.add_argument_group(options.GROUPS[option.name])
        _add(group, option)
    return made


def command(
    name: str, description: str, examples: str = "", **positional: dict[str, Any]
) -> Callable[[Body], Callable[[list[str]], int]]:
    """Makes a function the command of this name: it gets what was typed, and returns a status, or nothing for 0.

    `positional`: words that are no options, with what argparse wants to know of each.
    """

    def around(body: Body) -> Callable[[list[str]], int]:
        def main(arguments: list[str]) -> int:
            made = parser(name, description, examples)
            for word, how in positional.items():
                made.add_argument(word, **how)
            return body(made.parse_args(arguments)) or exitcodes.OK

        return main

    return around


def _add(target: Group, option: Option) -> None:
    names = [name for name in (option.short, option.flag) if name]
    typed = option.least == options.TYPED
    text = option.about() if typed else f"{option.about()} [{option.variable}]"
    # A setting's flag that is not given leaves no trace: the variable or a file may say something.
    how: dict[str, Any] = {
        "dest": option.attribute,
        "help": text.replace("%", "%%"),
        "default": option.default if typed else argparse.SUPPRESS,
    }
    if option.kind == "flag":
        how["action"] = "store_true" if typed else argparse.BooleanOptionalAction
    elif option.kind == "switch":
        # With its value in the same word: the word behind `--triton-autotune` is a file for pytest.
        names += [f"--no-{option.name}", *(f"--{option.name}={word}" for word in option.metavar.split("|"))]
        how |= {"action": _Switch, "nargs": 0}
    else:
        how |= {"metavar": option.metavar, "action": _List if option.kind == "list" else "store"}
        if option.kind != "list":
            # A setting is read with the others, which know where paths begin.
            how["type"] = partial(config.convert, option) if typed else str
        if option.kind == "pair":
            how |= {"nargs": 2, "metavar": tuple(option.metavar.split())}
    target.add_argument(*names, **how)


def given(parsed: argparse.Namespace) -> dict[str, Any]:
    """Settings on this command line, by name."""
    rows = [option for option in options.of(parsed.of) if option.least != options.TYPED]
    return {option.name: getattr(parsed, option.attribute) for option in rows if option.attribute in parsed}


def settings(parsed: argparse.Namespace, *, told: bool = True) -> config.Settings:
    """Everything that is set. With `told`, what was wrong with files is said here; else the caller does it."""
    merged = load(given(parsed), os.environ, identity.working_directory())
    if told:
        tell(merged)
    return merged


def tell(merged: config.Settings) -> None:
    for line in [f"warning: {text}" for text in merged.warnings] + merged.remarks:
        output.tell(f"ondol: {line}")
