"""Text that others wrote: safe to show, and whether it is a number, a plain name, a pattern. Pure."""

import re
from fnmatch import fnmatchcase

#: At the beginning of a line Buildkite takes these for headlines.
_HEADLINES = ("--- ", "+++ ", "~~~ ", "^^^ ")
_MARKDOWN = frozenset("\\`*_[]<>|&~#!$@")


def printable(text: str) -> str:
    """Text that somebody else made (a kernel's title, a test's name, a line of a log) as one line, safe to print.

    No control character reaches the terminal, and no CI system finds a command: GitHub looks for `::error::` at the
    beginning of a line and for `##[…]` anywhere, Azure for `##vso[…]`, TeamCity for `##teamcity[…]`; those of GitLab
    and Jenkins need control characters.
    """
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
    while "##" in text:
        text = text.replace("##", "# #")
    if text.lstrip().startswith("::"):
        text = text.replace("::", ": :", 1)
    return f" {text}" if text.startswith(_HEADLINES) else text


def markdown(text: str) -> str:
    """The same for a place in a Markdown page: nothing in it is markup, a link, HTML, or the end of a table's cell."""
    return "".join(f"\\{letter}" if letter in _MARKDOWN else letter for letter in printable(text))


def code_span(text: str) -> str:
    """The same as code in a Markdown page, also in a table's cell."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', '¦')}`"


def alike(text: str) -> str:
    """The same for texts that differ in numbers only: addresses, descriptors, processes."""
    return re.sub(r"0x[0-9a-f]+|\d+", "0", text)


def is_number(text: str, digits: int = 18) -> bool:
    """Whether text that others wrote is a plain count. `"²".isdigit()` is true and `int("²")` an error, and so is the
    `int` of five thousand digits. A pid has nine at most: no system call takes more.
    """
    return text.isascii() and text.isdigit() and len(text) <= digits


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,199}")


def is_plain_name(text: object) -> bool:
    """Whether text can be one path component without surprises: a scope, a tool, a fingerprint, a key."""
    return isinstance(text, str) and _PLAIN_NAME.fullmatch(text) is not None


def is_pattern(text: object) -> bool:
    """A plain name, or one in which `*` stands for anything: `pr-*`."""
    return isinstance(text, str) and is_plain_name(text.replace("*", "x"))


def matches(name: str, pattern: str) -> bool:
    return name == pattern if "*" not in pattern else fnmatchcase(name, pattern)
