"""Few large pages instead of many small ones, for a process that is forked again and again."""

import ctypes
from collections.abc import Iterator

_SIZE = 1 << 21
_COLLAPSE = 25  # MADV_COLLAPSE, of Linux 6.1


def collapse() -> int:
    """Put this process's heap into large pages, and say how many: 0 where the kernel cannot do it.

    A fork copies an entry per page, and its end looks at each of them again: with torch loaded, two thirds of what a
    fork costs. Whoever writes to a large page afterwards copies 4 KiB of it, as from a small one.
    """
    libc = ctypes.CDLL(None)
    return sum(libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(_SIZE), _COLLAPSE) == 0 for at in _heap())


def _heap() -> Iterator[int]:
    """Where a large page could begin, in memory that belongs to no file."""
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps]
    for region, mode, _, _, inode, *name in regions:
        if mode == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            low, high = (int(end, 16) for end in region.split("-"))
            yield from range(-(-low // _SIZE) * _SIZE, high - _SIZE + 1, _SIZE)
