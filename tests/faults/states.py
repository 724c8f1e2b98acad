"""What a strike leaves behind, as a value: what follows from it needs to be looked at once.

Most calls change nothing on the disk, and a kill after one call leaves what a kill before the next leaves: many points,
few states.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

#: Whose a room was, by number and start: by now it is dead, so it does not matter which process that was.
_WHO = re.compile(rb"^\d+ \d+ ")


@contextmanager
def same_names() -> Iterator[None]:
    """Random names are the same each time, and differ between this process and each helper that it forks."""
    urandom, fork = os.urandom, os.fork
    who, drawn, forked = "", itertools.count(), itertools.count()

    def draw(size: int) -> bytes:
        return sha256(f"{who} {next(drawn)}".encode()).digest()[:size]

    def fork_other() -> int:
        nonlocal who
        helper = next(forked)
        pid = fork()
        if pid == 0:
            who += f".{helper}"
        return pid

    os.urandom, os.fork = draw, fork_other
    try:
        yield
    finally:
        os.urandom, os.fork = urandom, fork


def state(path: str) -> bytes:
    """A digest of all that a later process can go by: names, kinds, modes, owners, links, contents, and what is old.

    Left out are inode numbers, and times by less than an hour: what a strike leaves is new, what was old before is ancient.
    """
    digest, recent = sha256(), time.time() - 3600
    folders = [path]
    while folders:
        folder = folders.pop()
        for name in sorted(os.listdir(folder)):
            item = os.path.join(folder, name)
            status = os.lstat(item)
            content = b""
            if stat.S_ISDIR(status.st_mode):
                folders.append(item)
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(item).encode()
            else:
                content = _content(item)
            facts = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_mtime > recent)
            digest.update(repr((item, *facts, content)).encode())
    return digest.digest()


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        content = file.read()
    return _WHO.sub(b"somebody ", content) if path.endswith("/owner") else content
