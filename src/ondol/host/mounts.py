"""The table of mounts, as the kernel tells it; nothing on any file system is touched."""

from __future__ import annotations

from typing import NamedTuple

_ESCAPED = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mount(NamedTuple):
    point: str
    #: The type of file system, as the kernel names it.
    kind: str
    #: Of the mount and of the file system behind it.
    options: frozenset[str]


NOWHERE = Mount("", "unknown", frozenset())


def table() -> dict[str, Mount]:
    """By mount point, in this process's namespace; empty where there is no /proc.

    Of several mounts on one point the last is kept, which hides the others.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return {mount.point: mount for mount in map(parse, lines)}
    except OSError:
        return {}


def parse(line: str) -> Mount:
    """One line of /proc/self/mountinfo, proc(5)."""
    before, _, after = line.rstrip("\n").partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    return Mount(_plain(fields[4]), rest[0], frozenset([*fields[5].split(","), *rest[-1].split(",")]))


def _plain(text: str) -> str:
    if "\\" in text:
        for escape, letter in _ESCAPED.items():
            text = text.replace(escape, letter)
    return text


def mount_of(path: str, mounts: dict[str, Mount]) -> Mount:
    """Where a path without symbolic links lies."""
    while path not in mounts:
        if path in ("/", ""):
            return NOWHERE
        path = path.rpartition("/")[0] or "/"
    return mounts[path]
