"""Where the workers of a run have their TMPDIRs: at short paths, because programs put sockets there.

The path of a socket has at most 107 bytes, and multiprocessing alone adds 33 of them to TMPDIR.
"""

import os
import stat
from itertools import count

from ondol.host import files, filesystem

#: A longer TMPDIR leaves too little for a socket; then the workers' lie in /tmp, if a room could.
LONGEST = 60


def make(base: str) -> str:
    """A new private directory below `base`; the caller removes it."""
    if len(os.fsencode(base)) > LONGEST and not filesystem.try_directory("/tmp").why_not:
        base = "/tmp"
    if stat.S_IMODE(os.stat(base).st_mode) & 0o077:
        return files.make_private(base, "ondol-")
    # A room's: nobody else reaches it, so that a number is enough.
    for number in count(1):
        path = os.path.join(base, str(number))
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return path
    raise AssertionError
