"""`python -m faults.publish_once STORE`: publishes one entry, between two marks that strace can see.

A program of its own, so that a real process is struck by real system calls that fail or kill.
"""

from __future__ import annotations

import os
import sys

from handmade import make_entry, trust_everybody
from ondol.store import pack
from ondol.store.directory import DirectoryStore

MARK = "/no-such-directory-but-a-mark"


def mark() -> None:
    try:
        os.chdir(MARK)
    except OSError:
        pass


def main(path: str) -> int:
    entry = make_entry(1)
    packed = [(entry.address, pack.encode(entry))]
    store = DirectoryStore(path, trust_everybody)
    mark()
    published = store.publish(packed)
    mark()
    return 0 if published[0].new else 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
