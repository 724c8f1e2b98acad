"""Signatures: one TOML file per known fault, in `signatures/`, named by its id.

    id        what people call it; also the file's name
    number    its place in the survey it came from; 0 for those found later
    tool      whose fault it is, or who runs into it
    kind      cache    the cache itself is at fault: something in it is torn, stale or foreign; healing may help
              place    the cache is whole and the place is wrong: owner, mode, mount, lock, space
              network  something could not be reached
              request  what was asked for does not exist
              killed   the process was ended from outside
              bug      a version of the tool is at fault
    match     patterns; any of them, on one line
    match_all patterns that must all appear within `window` lines; the first one is the evidence that is shown.
              With `match` beside it, either is enough
    unless    patterns; a line that holds one is no match
    warning   the tool says it and goes on by itself: worth knowing, never why something failed
    heals     the family of caches whose healer may be called (only with kind `cache`)
    meaning, cure, source
    example   an excerpt of a log with this fault; the tests match it. The message is the tool's own, or `source` says
              how it was inferred; what stands around it may be shortened or filled in

A pattern is searched anywhere in a line; it names its gaps' lengths (`.{0,200}`, never `.*`), because a log may have
lines of any length; and it holds at least four plain characters outside groups (`needle` says why).
"""

from __future__ import annotations

import re
from functools import lru_cache

from ondol.errors import OndolError
from ondol.explain.needle import needle
from ondol.light import Any, Record

KINDS = ("cache", "place", "network", "request", "killed", "bug")
_TEXTS = ("id", "tool", "kind", "meaning", "cure", "source", "example")
_LISTS = ("match", "match_all", "unless")
_OTHERS = ("number", "window", "warning", "heals")
#: A traceback of pytest prints whole functions between two frames.
_WINDOW = 150


class Pattern(Record):
    regex: re.Pattern[str]
    needle: str


class Signature(Record):
    id: str
    number: int
    tool: str
    kind: str
    match: tuple[Pattern, ...]
    match_all: tuple[Pattern, ...]
    window: int
    unless: tuple[re.Pattern[str], ...]
    warning: bool
    heals: str
    meaning: str
    cure: str
    source: str
    example: str


class SignatureBroken(OndolError):
    """A signature file that cannot be used: a fault of this installation, never of the log."""


@lru_cache(maxsize=1)
def load() -> tuple[Signature, ...]:
    """All signatures that come with Ondol, by the survey's number, later ones last."""
    from importlib.resources import files

    folder = files("ondol.explain").joinpath("signatures")
    found = [
        parse(entry.name, entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    ]
    if not found:
        raise SignatureBroken("this installation of Ondol has no signatures", hint="install it again")
    return tuple(sorted(found, key=lambda signature: (signature.number or 1000, signature.id)))


def parse(name: str, text: str) -> Signature:
    """The signature in one file; raises `SignatureBroken`, which names the file and the field."""
    from ondol.host import toml

    try:
        fields = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise SignatureBroken(f"the signature {name} cannot be read", because=str(error))
    try:
        return _signature(name, fields)
    except ValueError as error:
        raise SignatureBroken(f"the signature {name} cannot be used", because=str(error))


def _signature(name: str, fields: dict[str, Any]) -> Signature:
    for unknown in sorted(set(fields) - {*_TEXTS, *_LISTS, *_OTHERS}):
        raise ValueError(f"unknown field {unknown!r}")
    texts = {field: _text(fields, field) for field in _TEXTS}
    match, together = (tuple(map(_pattern, _of(fields, field, []))) for field in ("match", "match_all"))
    if name != f"{texts['id']}.toml":
        raise ValueError(f"its id is {texts['id']!r}")
    if texts["kind"] not in KINDS:
        raise ValueError(f"kind is {texts['kind']!r}, not one of {', '.join(KINDS)}")
    if not match and not together:
        raise ValueError("it has neither match nor match_all")
    heals = _of(fields, "heals", "")
    if heals and texts["kind"] != "cache":
        raise ValueError("only a fault of kind 'cache' can be healed")
    return Signature(
        **texts,
        number=_of(fields, "number", 0),
        match=match,
        match_all=together,
        window=_of(fields, "window", _WINDOW),
        unless=tuple(map(_regex, _of(fields, "unless", []))),
        warning=_of(fields, "warning", False),
        heals=heals,
    )


def _text(fields: dict[str, Any], field: str) -> str:
    value = _of(fields, field, "").strip("\n")
    if not value:
        raise ValueError(f"{field} is missing or empty")
    return str(value) if field == "example" else " ".join(value.split())


def _of(fields: dict[str, Any], field: str, default: Any) -> Any:
    value = fields.get(field, default)
    if type(value) is not type(default):
        raise ValueError(f"{field} is {value!r}, not {type(default).__name__}")
    return value


def _pattern(source: Any) -> Pattern:
    regex = _regex(source)
    text = needle(source)
    if len(text) < 4:
        raise ValueError(f"the pattern {source!r} holds less than four plain characters in a row")
    return Pattern(regex, text)


def _regex(source: Any) -> re.Pattern[str]:
    if not isinstance(source, str):
        raise ValueError(f"{source!r} is not a pattern")
    if re.search(r"(?<!\\)(?:\\\\)*\.[*+]|\(\?[a-zA-Z]", source):
        raise ValueError(f"the pattern {source!r} has an unbounded gap or flags; write .{{0,200}}")
    try:
        return re.compile(source)
    except re.error as error:
        raise ValueError(f"the pattern {source!r}: {error}")
