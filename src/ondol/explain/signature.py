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
lines of any length; and it holds at least four plain characters outside groups (its needle). The tests check each file.
"""

import importlib
import re
import sys
from functools import lru_cache
from typing import Any, NamedTuple

from ondol.errors import OndolError

#: `re`'s own parser of patterns.
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


class Pattern(NamedTuple):
    regex: re.Pattern[str]
    #: Plain text that every match contains.
    needle: str


class Signature(NamedTuple):
    id: str
    tool: str
    kind: str
    meaning: str
    cure: str
    source: str
    example: str
    number: int = 0
    match: tuple[Pattern, ...] = ()
    match_all: tuple[Pattern, ...] = ()
    #: A traceback of pytest prints whole functions between two frames.
    window: int = 150
    unless: tuple[re.Pattern[str], ...] = ()
    warning: bool = False
    heals: str = ""


@lru_cache(maxsize=1)
def load() -> tuple[Signature, ...]:
    """All signatures that come with Ondol, by the survey's number, later ones last."""
    from importlib.resources import files

    from ondol.host import toml

    folder = files("ondol.explain").joinpath("signatures")
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".toml")]
    if not texts:
        raise OndolError("this installation of Ondol has no signatures", hint="install it again")
    found = [_signature(toml.loads(text)) for text in texts]
    return tuple(sorted(found, key=lambda signature: (signature.number or 1000, signature.id)))


def _signature(fields: dict[str, Any]) -> Signature:
    made: dict[str, Any] = {name: " ".join(fields[name].split()) for name in ("meaning", "cure", "source")}
    made["example"] = fields["example"].strip("\n")
    for name in ("match", "match_all"):
        made[name] = tuple(Pattern(re.compile(source), needle(source)) for source in fields.get(name, ()))
    made["unless"] = tuple(map(re.compile, fields.get("unless", ())))
    return Signature(**{**fields, **made})


def needle(source: str) -> str:
    """The longest plain text of a pattern outside groups; empty if there is none, as in a choice (write two patterns).

    Looking for plain text is a hundred times faster than trying a pattern, and a log can have hundreds of megabytes:
    each pattern is only tried on lines that hold its needle.
    """
    runs = [""]
    for kind, value in _parser.parse(source):
        if kind is _parser.LITERAL:
            runs[-1] += chr(value)
        else:
            runs.append("")
    return max(runs, key=len)
