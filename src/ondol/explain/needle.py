"""A piece of plain text that every match of a pattern contains. Pure.

Looking for plain text is a hundred times faster than trying a pattern, and a log can have hundreds of megabytes: each
pattern is only tried on lines that hold its needle.
"""

from __future__ import annotations

import re

_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEAT = re.compile(r"\{\d*,?\d*\}[?+]?|[*?+][?+]?")


def needle(pattern: str) -> str:
    """The longest plain text outside groups; empty if there is none, as in a choice at the top (write two patterns)."""
    runs = [""]
    place = 0
    while place < len(pattern):
        repeat = _REPEAT.match(pattern, place)
        if repeat:
            once_at_least = repeat.group()[0] == "+" or re.match(r"\{[1-9]", repeat.group())
            if not once_at_least:
                runs[-1] = runs[-1][:-1]
            runs.append("")
            place = repeat.end()
            continue
        letter, place, plain = _one(pattern, place)
        if letter == "|":
            return ""
        if plain:
            runs[-1] += letter
        else:
            runs.append("")
    return max(runs, key=len)


def _one(pattern: str, place: int) -> tuple[str, int, bool]:
    """(the next thing, where it ends, whether it stands for itself)"""
    letter = pattern[place]
    if letter == "\\":
        meant = pattern[place + 1 : place + 2]
        return meant, place + 2, not meant.isalnum()
    if letter == "[":
        found = _CLASS.match(pattern, place)
        return letter, found.end() if found else len(pattern), False
    if letter == "(":
        return letter, _end_of_group(pattern, place), False
    return letter, place + 1, letter not in ".^$|"


def _end_of_group(pattern: str, place: int) -> int:
    depth = 0
    while place < len(pattern):
        if pattern[place] == "\\":
            place += 2
            continue
        found = _CLASS.match(pattern, place) if pattern[place] == "[" else None
        if found:
            place = found.end()
            continue
        depth += {"(": 1, ")": -1}.get(pattern[place], 0)
        place += 1
        if depth == 0:
            break
    return place
