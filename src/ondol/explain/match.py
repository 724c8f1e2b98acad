"""Finding known faults in the output of programs. Pure: gets text and signatures, gives matches.

A log is seen as blocks of whole lines, so that hundreds of megabytes need the memory of one block. In a block, each
pattern's needle is looked for first; only the lines that hold it are tried. A signature that needs several lines
remembers the number of the line where it last saw each part, nothing else.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ondol.explain import noise
from ondol.explain.signature import Signature, load

#: A block is about this many characters.
_BLOCK = 1 << 20
#: A longer line is looked at in pieces: memory stays bounded, and so does the time that a pattern can take on one.
MAX_LINE = 1 << 14
#: The pieces share this many characters, so that a fault is whole in one of them.
_SHARED = 1 << 10
#: A line that only says why the one before it happened: the chains of uv, Rust and Java end with the first cause.
_LINK = re.compile(r"\s*(?:cause:|Caused by:|[├╰]─▶|[|`]->) |\s*Caused by:$|\s+\d+: ")
_LONGEST_CHAIN = 12
#: uv breaks the line of a cause where a path makes it long, and sets the rest in below it.
_BROKEN, _REST = re.compile(r"\s*(?:cause:|Caused by:) "), re.compile(r" {9,}(?=\S)")
_LONGEST_BREAK = 6


class Hit(NamedTuple):
    """One appearance of a fault."""

    signature: Signature
    line_number: int
    line: str
    #: The number of the line that begins its chain of causes; its own, where there is none.
    chain: int


class LogVerdict(NamedTuple):
    """`cache`: a healer may be called for `signature.heals`. Else the kind of the first cause, or `unknown`."""

    kind: str
    signature: Signature | None
    line: str = ""


def judge(text: str | Iterable[str]) -> LogVerdict:
    """What the output of a failed command says about its cache; `cache` only where the cache is surely at fault."""
    cause = first_cause(list(scan(text)))
    if cause is None:
        return LogVerdict("unknown", None)
    kind = cause.signature.kind
    if kind == "cache" and not cause.signature.heals:
        kind = "unknown"
    return LogVerdict(kind, cause.signature, cause.line)


def first_cause(hits: Sequence[Hit]) -> Hit | None:
    """The hit that explains the others.

    Python prints the first exception first, whatever was raised while it was handled or because of it. In a chain of
    causes the last line is the first cause. Of two faults on one line, a tool's own says more than one that any tool
    can have. What a tool only warns of explains no failure.
    """
    first: Hit | None = None
    grave = (hit for hit in hits if not hit.signature.warning)
    for hit in sorted(grave, key=lambda hit: (hit.line_number, hit.signature.tool != "any")):
        if first is None or hit.chain == first.chain:
            first = hit
    return first


def scan(text: str | Iterable[str]) -> Iterator[Hit]:
    """Every appearance of every fault, block by block."""
    scanner = Scanner(load())
    for number, block in blocks(text.split("\n") if isinstance(text, str) else text):
        yield from scanner.block(block, number)


def blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of blocks of whole lines, without escape sequences."""
    number, held, size = 1, list[str](), 0
    for line in whole_causes(lines):
        held.append(line)
        size += len(line) + 1
        if size >= _BLOCK:
            yield number, noise.without_escapes("\n".join(held))
            number, held, size = number + len(held), [], 0
    if held:
        yield number, noise.without_escapes("\n".join(held))


def whole_causes(lines: Iterable[str]) -> Iterator[str]:
    """The lines without their newlines; a cause that was broken into several is one again, with empty ones below it, so
    that lines keep their numbers.
    """
    broken, rests = "", 0
    for line in lines:
        line = line[:-1] if line.endswith("\n") else line
        bare = noise.without_prefix(noise.without_escapes(line)) if broken or "ause" in line else ""
        rest = _REST.match(bare) if broken else None
        if rest and rests < _LONGEST_BREAK:
            broken, rests = f"{broken} {bare[rest.end() :]}", rests + 1
            continue
        yield from [broken, *[""] * rests] if broken else []
        broken, rests = "", 0
        if _BROKEN.match(bare):
            broken = line
        else:
            yield line
    yield from [broken, *[""] * rests] if broken else []


class Scanner:
    """Looks for signatures in consecutive blocks of one text."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        #: needle → (signature, the number of the part or -1 for `match`, pattern)
        self._index: dict[str, list[tuple[Signature, int, re.Pattern[str]]]] = {}
        for signature in signatures:
            for pattern in signature.match:
                self._index.setdefault(pattern.needle, []).append((signature, -1, pattern.regex))
            for part, pattern in enumerate(signature.match_all):
                self._index.setdefault(pattern.needle, []).append((signature, part, pattern.regex))
        self._parts: dict[str, dict[int, Hit]] = {}
        #: How many lines at the end of the block before this one were links of a chain of causes.
        self._links_before = 0

    def forget(self) -> None:
        """What follows belongs to another text: parts of a signature that were seen do not count for it."""
        self._parts.clear()
        self._links_before = 0

    def block(self, text: str, first_line: int) -> list[Hit]:
        """The hits in this text, whose first line has this number."""
        seen = [one for needle in self._index if needle in text for one in self._try(needle, text, first_line)]
        hits: dict[tuple[int, str], Hit] = {}
        for part, one in sorted(seen, key=lambda pair: (pair[1].line_number, pair[0])):
            hit = one if part < 0 else self._together(part, one)
            if hit:
                hits.setdefault((hit.line_number, hit.signature.id), hit)
        self._links_before = self._links_to(text, text.rfind("\n") + 1)
        return sorted(hits.values(), key=lambda hit: hit.line_number)

    def _try(self, needle: str, text: str, first_line: int) -> Iterator[tuple[int, Hit]]:
        """(part, hit) of each pattern that matches a line with this needle."""
        number, counted = first_line, 0
        place = text.find(needle)
        while place >= 0:
            start = text.rfind("\n", 0, place) + 1
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            number += text.count("\n", counted, start)
            counted = start
            for signature, part, regex in self._index[needle]:
                line = _matching_piece(regex, text[start:end])
                if line and not any(unless.search(line) for unless in signature.unless):
                    yield part, Hit(signature, number, line, number - self._links_to(text, start))
            place = text.find(needle, end)

    def _together(self, part: int, hit: Hit) -> Hit | None:
        """The hit of the whole signature, if this part completes it."""
        parts = self._parts.setdefault(hit.signature.id, {})
        parts[part] = hit
        numbers = [seen.line_number for seen in parts.values()]
        if len(parts) < len(hit.signature.match_all) or max(numbers) - min(numbers) > hit.signature.window:
            return None
        del self._parts[hit.signature.id]
        return parts[0]

    def _links_to(self, text: str, start: int) -> int:
        """How many links of a chain of causes end with the line that starts here; the line above them began it."""
        links = 0
        while links < _LONGEST_CHAIN:
            line = noise.without_prefix(text[start : start + 200].partition("\n")[0])
            if not _LINK.match(line):
                return links
            links += 1
            if start == 0:
                return links + self._links_before
            start = text.rfind("\n", 0, start - 1) + 1
        return links


def _matching_piece(regex: re.Pattern[str], line: str) -> str:
    """The line, or the piece of a very long one, in which the pattern is found; empty if it is not."""
    if len(line) <= MAX_LINE:
        return line if regex.search(line) else ""
    pieces = (line[at : at + MAX_LINE] for at in range(0, len(line), MAX_LINE - _SHARED))
    return next((piece for piece in pieces if regex.search(piece)), "")
