"""Trying things out in somebody's directory: in a corner of our own, which is gone afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ondol.host import files

PREFIX = ".ondol-probe-"


@contextmanager
def corner(path: str) -> Iterator[str]:
    """A new private directory in `path`. Raises `OSError` where none can be made."""
    probe = os.path.join(path, PREFIX + files.random_name())
    os.mkdir(probe, 0o700)
    try:
        yield probe
    finally:
        files.remove_tree(probe)


def name_of(error: OSError) -> str:
    """`EDQUOT (Disk quota exceeded)`; 524 has no name outside the kernel, and NFS lets it out."""
    number = error.errno or 0
    if number == 524:
        return "524 ENOTSUPP (the file server knows no locks)"
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"


def ask_another_process(question: Callable[[], int]) -> int:
    """What another process answers, the way a second job would see it; -1 if it has no answer."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, str(question()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = os.read(reading, 64)
    finally:
        os.close(reading)
        os.waitpid(pid, 0)
    return int(answer) if answer else -1
