"""What ninja writes down about a build: `build.ninja` (the plan), `.ninja_log` (which command made what, when) and
`.ninja_deps` (which headers each output really read). Read and written here; `ninja_built` draws the conclusions.

Tried with ninja 1.10.2, 1.11.1 and 1.13.2: log versions 5 to 7, deps version 4. Anything else is refused: then the tool
builds.

ninja calls an output clean if it is not older than any of its inputs, if the log's time for it is not older than any of
them either and the log's command is today's, and if its record in `.ninja_deps` is not older than the output. All of
that is times; nothing in these files says what the inputs contained.
"""

import re
import struct
from collections.abc import Mapping
from typing import NamedTuple

from ondol.errors import EntryRefused

PLAN, LOG, DEPS = "build.ninja", ".ninja_log", ".ninja_deps"
_LOG_VERSIONS = ("5", "6", "7")
_LOG_HEAD = "# ninja log v"
_DEPS_HEAD = b"# ninjadeps\n" + struct.pack("<i", 4)
_IS_DEPS = 1 << 31
#: ninja's own bound on one record.
_MAX_RECORD = (1 << 19) - 1
_VARIABLE = re.compile(r"\$(?:\{([\w.-]+)\}|([\w-]+)|(\$)|( )|(:))")


class Edge(NamedTuple):
    """One `build` statement."""

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    #: Its command, as far as it can be known without the names of its files; words as a shell would see them.
    command: str
    #: Whether ninja must have a record of what the outputs read.
    has_deps: bool


class Made(NamedTuple):
    """What the log says of one output."""

    #: Milliseconds since ninja started.
    start: int
    end: int
    #: Nanoseconds: when its command started (before ninja 1.11: when the output was written).
    mtime: int
    #: A hash of the command, in the words of the log's own version.
    command: str


class NinjaLog(NamedTuple):
    version: str
    made: Mapping[str, Made]


# -- build.ninja -------------------------------------------------------------------------------------------------------


def read_plan(data: bytes) -> list[Edge]:
    """The statements of a build file. It must stand alone: one that includes others is refused."""
    variables: dict[str, str] = {}
    rules: dict[str, dict[str, str]] = {}
    edges: list[Edge] = []
    bindings: dict[str, str] = {}  # where an indented line belongs
    for line in _lines(data):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, _, rest = line.strip().partition(" ")
        name, is_binding, value = (part.strip() for part in line.partition("="))
        if line[0] == " " and is_binding:
            bindings[name] = value
        elif word == "rule":
            bindings = rules.setdefault(rest.strip(), {})
        elif word == "build":
            bindings = {}
            edges.append(_edge(rest, variables, rules))
        elif word in ("subninja", "include", "pool"):
            raise EntryRefused(f"{PLAN} does not stand alone: {line.strip()[:80]}", because="unknown")
        elif is_binding and re.fullmatch(r"[\w.-]+", name):
            variables[name] = _expand(value, variables)
    if not edges:
        raise EntryRefused(f"{PLAN} builds nothing", because="torn")
    return edges


def _lines(data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise EntryRefused(f"{PLAN} is not text", because="torn")
    return re.sub(r"\$\n\s*", "", text).split("\n")


def _edge(text: str, variables: Mapping[str, str], rules: Mapping[str, Mapping[str, str]]) -> Edge:
    left, right = [*re.split(r"(?<!\$):", text.strip(), maxsplit=1), ""][:2]
    rule, *inputs = _paths(right, variables) or [""]
    if not left.strip() or (rule not in rules and rule != "phony"):
        raise EntryRefused(f"{PLAN} has a statement that cannot be read: {text[:80]}", because="unknown")
    bindings = rules.get(rule, {})
    command = _expand(bindings.get("command", ""), variables)
    return Edge(tuple(_paths(left, variables)), tuple(inputs), command, "deps" in bindings)


def _paths(text: str, variables: Mapping[str, str]) -> list[str]:
    """The paths of a statement; ninja's bars between kinds of inputs are left out, for all kinds count."""
    words = [word for word in re.split(r"(?<!\$) +", text) if word and word not in ("|", "||", "|@")]
    return [_expand(word, variables) for word in words]


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Variables that are known, and ninja's escapes; `$in` and `$out` stay as they are."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return match[3] or match[4] or match[5] or ""
        return variables[name] if name in variables else match[0] if name in ("in", "out") else ""

    return _VARIABLE.sub(value, text)


# -- .ninja_log --------------------------------------------------------------------------------------------------------


def read_log(data: bytes) -> NinjaLog:
    """The last word on each output. A line that is cut off, as by a killed ninja, makes the whole log useless."""
    head, *lines = data.decode("utf-8", "surrogateescape").split("\n")
    version = head.removeprefix(_LOG_HEAD)
    if not head.startswith(_LOG_HEAD) or version not in _LOG_VERSIONS:
        raise EntryRefused(f"{LOG} is of a version that is not known: {head[:40]!r}", because="unknown")
    made: dict[str, Made] = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        try:
            start, end, mtime, output, command = fields
            made[output] = Made(int(start), int(end), int(mtime), command)
        except ValueError:
            raise EntryRefused(f"{LOG} is torn", because="torn")
    return NinjaLog(version, made)


def write_log(log: NinjaLog, mtime: int) -> bytes:
    """With this time for every output."""
    lines = [f"{_LOG_HEAD}{log.version}"]
    lines += [f"{m.start}\t{m.end}\t{mtime}\t{output}\t{m.command}" for output, m in sorted(log.made.items())]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


# -- .ninja_deps -------------------------------------------------------------------------------------------------------

#: output → (when it was recorded, what it read)
Deps = dict[str, tuple[int, tuple[str, ...]]]


def read_deps(data: bytes) -> Deps:
    """The last record of each output."""
    if not data.startswith(_DEPS_HEAD):
        raise EntryRefused(f"{DEPS} is of a version that is not known", because="unknown")
    paths: list[str] = []
    deps: Deps = {}
    position = len(_DEPS_HEAD)
    try:
        while position < len(data):
            (size,) = struct.unpack_from("<I", data, position)
            position += 4
            size, is_deps = size & ~_IS_DEPS, bool(size & _IS_DEPS)
            record = data[position : position + size]
            if len(record) != size or size > _MAX_RECORD or size % 4 or size < 8:
                raise ValueError("cut off")
            position += size
            if is_deps:
                output, low, high = struct.unpack_from("<iII", record)
                inputs = struct.unpack_from(f"<{size // 4 - 3}i", record, 12)
                deps[paths[output]] = (high << 32 | low, tuple(paths[number] for number in inputs))
            else:
                paths.append(_path(record, len(paths)))
    except (ValueError, IndexError, struct.error):
        raise EntryRefused(f"{DEPS} is torn", because="torn")
    return deps


def _path(record: bytes, number: int) -> str:
    if struct.unpack_from("<I", record, len(record) - 4)[0] != ~number & 0xFFFFFFFF:
        raise ValueError("a path out of order")
    return record[:-4].rstrip(b"\0").decode("utf-8", "surrogateescape")


def dated_deps(data: bytes, mtime: int) -> bytes:
    """The same, with this time for every record. Raises `EntryRefused` as `read_deps` does."""
    read_deps(data)
    dated, position = bytearray(data), len(_DEPS_HEAD)
    while position < len(data):
        (size,) = struct.unpack_from("<I", data, position)
        if size & _IS_DEPS:
            struct.pack_into("<II", dated, position + 8, mtime & 0xFFFFFFFF, mtime >> 32)
        position += 4 + (size & ~_IS_DEPS)
    return bytes(dated)
