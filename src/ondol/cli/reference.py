"""The reference page of settings, made from their table so that it cannot drift: `python -m ondol.cli.reference`."""

from __future__ import annotations

from ondol import words
from ondol.cli import output
from ondol.config import FILES, OPTIONS, Option

_HEAD = """# Settings

Made from `config.py` by `python -m ondol.cli.reference`; a test compares.

The command line beats the environment beats the file: the nearest {files}, in the
current directory or above it, up to the top of the checkout. An unknown key or an impossible value is an error.
`ondol config` shows every value and where it came from.

| flag of `ondol run` | variable | key in the file | default | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    files = f"`{FILES[0]}`, or `{FILES[1]}` with a `[tool.ondol]` table"
    return _HEAD.format(files=files) + "\n".join(map(_row, OPTIONS)) + "\n"


def _row(option: Option) -> str:
    flag = (
        f"--{option.name}" if option.kind == "flag" else f"--{option.name} {'/'.join(option.choices) or option.metavar}"
    )
    return f"| `{flag}` | `{option.variable}` | `{option.name}` | {_default(option)} | {option.help} |"


def _default(option: Option) -> str:
    if option.kind == "size":
        return words.size(option.default)
    if option.kind == "duration":
        return words.seconds(option.default)
    if option.kind == "flag":
        return "off"
    return f"`{','.join(option.default) if isinstance(option.default, list) else option.default}`".replace("``", "–")


if __name__ == "__main__":
    output.say(page().rstrip())
