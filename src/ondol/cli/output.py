"""The only place from which Ondol writes to the terminal: nothing that others named can drive it, or a CI system."""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from ondol.errors import OndolError
from ondol.foreign_text import printable


def say(text: str) -> None:
    """One line of what was asked for."""
    _write(sys.stdout, printable(text))


def say_lines(text: str) -> None:
    """Several: a table, a page of help. What others made in it must not hold a line break (`printable`)."""
    _write(sys.stdout, "\n".join(map(printable, text.split("\n"))))


def tell(text: str) -> None:
    """One line of everything else."""
    _write(sys.stderr, printable(text))


def ask(question: str) -> str:
    """What somebody at a terminal answers. Not through sys.stdin: what is typed after that line is the command's."""
    os.write(2, f"{printable(question)} ".encode("utf-8", "replace"))
    return os.read(0, 1024).decode("utf-8", "replace").strip().lower()


def data(text: str) -> None:
    """For a program that reads it byte by byte: words of a shell, a whole document."""
    _write(sys.stdout, text)


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except UnicodeEncodeError:
        stream.write(text.encode("ascii", "replace").decode() + "\n")
    except (OSError, ValueError, AttributeError):
        pass  # a closed pipe or a missing stream is the reader's wish, not a failure of the job


def say_json(name: str, value: dict[str, Any]) -> None:
    """For programs; `docs/reference/json.md` has the fields. A change that breaks readers gets another number."""
    value = {"format": f"ondol-{name}/1", **value}
    # Two of them side by side begin a command for some CI systems; only strings can hold them.
    say_lines(json.dumps(value, indent=2, sort_keys=False, default=str).replace("##", "#\\u0023"))


def answer(name: str, value: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """What a command was asked for: for programs, or for people."""
    if as_json:
        say_json(name, value)
    else:
        for line in lines:
            say(line)


def write_json(value: Any, path: str) -> str:
    """Into a file that the user named; says why it could not be written, or nothing."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
    except OSError as error:
        return f"the report could not be written to {path}: {error.strerror} (fix: name another --json file)"
    return ""


def fail(error: OndolError) -> None:
    tell(f"ondol: error: {error.what}")
    for label, text in (("because", error.because), ("note", error.note), ("hint", error.hint)):
        if text:
            tell(f"  {label}: {text}")
