"""Who shares a cache directory, judged by the mode of its top; who is kept out by the mode of an entry; what access
control lists grant, as the kernel keeps them in extended attributes (linux/posix_acl_xattr.h). Pure.
"""

import stat
import struct
from typing import NamedTuple

#: Only its owner writes there.
PRIVATE = "private"
#: The members of its group write there.
GROUP = "group"
#: Every user writes there, as in a directory of mode 0777.
EVERYBODY = "everybody"
#: As /tmp: everybody writes there, each their own.
STICKY = "sticky"
OPEN = (EVERYBODY, STICKY)


def sharing(mode: int) -> str:
    if mode & stat.S_IWOTH:
        return STICKY if mode & stat.S_ISVTX else EVERYBODY
    return GROUP if mode & stat.S_IWGRP else PRIVATE


def missing(mode: int, who: int, *, written: bool) -> int:
    """The bits that owner or group (S_IRWXU, S_IRWXG) need and have not. `written`: tools write into this very file."""
    needed = 0o777 if stat.S_ISDIR(mode) else 0o666 if written else 0o444
    return needed & who & ~mode


def others_can_create(mode: int, gid: int, shared_gid: int | None) -> bool:
    """Whether other users of the cache can make files in a directory: all of them, or those of the sharing group."""
    if mode & stat.S_IWOTH and mode & stat.S_IXOTH:
        return True
    return gid == shared_gid and bool(mode & stat.S_IWGRP and mode & stat.S_IXGRP)


ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"
_VERSION = 2
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_USER, _GROUP_OWNER, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_NAMES = {_USER: "user", _GROUP: "group"}


class Granted(NamedTuple):
    """What a list grants to somebody beside owner, group and others."""

    #: `user` or `group`
    kind: str
    number: int
    #: rwx as 4, 2, 1
    granted: int
    #: The same, after the mask.
    effective: int


def named(data: bytes) -> list[Granted]:
    """The named users and groups of a list. Bytes that are none give none."""
    rows = _rows(data)
    mask = _mask(rows)
    return [Granted(_NAMES[tag], who, granted, granted & mask) for tag, granted, who in rows if tag in _NAMES]


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
