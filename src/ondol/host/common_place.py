"""Whether a directory is one user's own, or a place where others can put files in his way."""

from __future__ import annotations

import os
import stat

from ondol.host import filesystem

#: Of a directory with many entries this many are looked at, which takes milliseconds: a few of another user are enough.
_LOOKED_AT = 4096


def why_common(path: str) -> str:
    """Why a job that writes there meets other users or other machines; empty if the directory is the caller's own."""
    kind = filesystem.fs_type(path)
    if filesystem.is_network(kind):
        return f"it is on a network file system ({kind}), where other machines write too"  # and a look could hang
    try:
        return _why(path)
    except OSError as error:
        return f"this job cannot use it: {error.strerror}"


def _why(path: str) -> str:
    missing = False
    while not os.path.lexists(path):
        path, missing = os.path.dirname(path), True
    status = os.stat(path)
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"uid {os.geteuid()} cannot write {path}"
    if missing:
        return ""  # what this job makes itself is its own
    if status.st_uid != os.geteuid():
        return f"it belongs to uid {status.st_uid}"
    if stat.S_IMODE(status.st_mode) & filesystem.open_to_others(status):
        return f"other users can write it (mode {stat.S_IMODE(status.st_mode):04o})"
    with os.scandir(path) as entries:
        for _, entry in zip(range(_LOOKED_AT), entries, strict=False):
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != status.st_uid:
                return f"uid {owner} has written there too ({entry.name})"
    return ""
