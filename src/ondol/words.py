"""Sizes, durations and counts, as people write and read them, and text of others, safe to show. Pure."""

import re
from fnmatch import fnmatchcase

_SIZES: dict[str, float] = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZES |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def _parse(text: str, units: dict[str, float]) -> float:
    text = text.strip().lower()
    unit = text.lstrip("0123456789.")
    if unit.strip() not in units:
        raise ValueError(f"unknown unit {unit.strip()!r}")
    return float(text[: len(text) - len(unit)]) * units[unit.strip()]


def parse_size(text: str) -> int:
    """`500M`, `10GiB`, `1024`: bytes. Raises `ValueError`."""
    return int(_parse(text, _SIZES))


def parse_duration(text: str) -> float:
    """`90`, `90s`, `15m`, `7d`: seconds. Raises `ValueError`."""
    return _parse(text, _TIMES)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit returns")


def seconds(value: float) -> str:
    if value >= 6000:
        return f"{value / 3600:.1f} h"
    if value >= 100:
        return f"{value / 60:.1f} min"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def duration(value: float) -> str:
    """As somebody would type it: `90s`, `15m`, `7d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if value and value % length == 0:
            return f"{value / length:g}{unit}"
    return f"{value:g}s" if value else "0"


def age(value: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= length:
            return f"{value / length:.0f} {unit}"
    return "now"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def entries(count: int) -> str:
    return plural(count, "entry", "entries")


def directories(count: int) -> str:
    return plural(count, "directory", "directories")


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


def closest(word: str, known: list[str], likeness: float = 0.6) -> str:
    """The known word that was probably meant, or empty."""
    import difflib  # only on the way to an error message

    return next(iter(difflib.get_close_matches(word[:60], known, n=1, cutoff=likeness)), "")


def did_you_mean(word: str, known: list[str], otherwise: str) -> str:
    """The hint of every error about a word that is not known."""
    meant = closest(word, known)
    return f"did you mean {meant}? Else: {otherwise}" if meant else otherwise
