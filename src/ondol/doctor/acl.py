"""POSIX access control lists, as the kernel keeps them in extended attributes (linux/posix_acl_xattr.h). Pure."""

import struct
from typing import NamedTuple

ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"
_VERSION = 2
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_USER, _GROUP_OWNER, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_NAMES = {_USER: "user", _GROUP: "group"}


class Named(NamedTuple):
    """What a list grants to somebody beside owner, group and others."""

    #: `user` or `group`
    kind: str
    number: int
    #: rwx as 4, 2, 1
    granted: int
    #: The same, after the mask.
    effective: int


def parse(data: bytes) -> list[Named]:
    """The named users and groups of a list. Bytes that are none give none."""
    rows = _rows(data)
    mask = _mask(rows)
    return [Named(_NAMES[tag], who, granted, granted & mask) for tag, granted, who in rows if tag in _NAMES]


def without_mask(mode: int, data: bytes) -> int:
    """A mode with the owning group's own rights in it: where there is a list, the mode has its mask in their place."""
    rows = _rows(data)
    for tag, granted, _ in rows:
        if tag == _GROUP_OWNER:
            return (mode & ~0o070) | (granted & _mask(rows)) << 3
    return mode


def _rows(data: bytes) -> list[tuple[int, int, int]]:
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[0] != _VERSION or (len(data) - _HEAD.size) % _ENTRY.size:
        return []
    return [_ENTRY.unpack_from(data, offset) for offset in range(_HEAD.size, len(data), _ENTRY.size)]


def _mask(rows: list[tuple[int, int, int]]) -> int:
    return next((granted for tag, granted, _ in rows if tag == _MASK), 7)


def letters(granted: int) -> str:
    return "".join(letter if granted & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
