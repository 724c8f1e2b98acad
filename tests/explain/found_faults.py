"""The faults in a text, each once: where it first appeared, and how often it did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ondol.explain.match import scan
from ondol.explain.signature import Signature


class Match(NamedTuple):
    signature: Signature
    line_number: int
    line: str
    count: int  # type: ignore[assignment]  # tuple's own method, which nobody calls here


def find(text: str | Iterable[str]) -> list[Match]:
    """Every fault in a text, or in lines (with or without their newlines); in the order of their first appearance."""
    found: dict[str, Match] = {}
    for hit in scan(text):
        known = found.get(hit.signature.id)
        if known is None:
            found[hit.signature.id] = Match(hit.signature, hit.line_number, hit.line, 1)
        else:
            number, line = min((known.line_number, known.line), (hit.line_number, hit.line))
            found[hit.signature.id] = Match(hit.signature, number, line, known.count + 1)
    return sorted(found.values(), key=lambda match: match.line_number)
