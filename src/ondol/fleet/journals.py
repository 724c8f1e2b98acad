"""Where the journals of runs are kept: `$XDG_STATE_HOME/ondol/journals`, a directory that only their user can open.

What tests printed is in them, and that may hold secrets. They are bounded: by age, by number and by size, at the start
of every run and by `ondol gc`.
"""

import os
import stat
import time
from pathlib import Path

from ondol.errors import UsageError
from ondol.fleet import kept
from ondol.host import files, identity

#: How long they are kept, how many, and how many bytes altogether.
LONGEST, MOST, LARGEST = 30 * 86400.0, 50, 1 << 30
#: One that was written to so recently may belong to a run that still goes on.
_IN_USE = 24 * 3600.0
_SUFFIX = ".jsonl"
LATEST = "latest"


def folder() -> str:
    return os.path.join(identity.user_state_dir(), "ondol", "journals")


def new_path() -> Path:
    """A name that nobody can guess, in a directory that only we can enter. What is too old there is removed."""
    where = folder()
    try:
        os.makedirs(os.path.dirname(where), mode=0o700, exist_ok=True)
        os.close(files.open_private(where, make=True))
        clean(time.time())
    except OSError:
        import tempfile  # most homes can be written

        where = tempfile.mkdtemp(prefix="ondol-journal-")  # a home that is full, or read-only
    return Path(where) / f"{time.strftime('%Y%m%d-%H%M%S')}-{files.random_name()[:12]}{_SUFFIX}"


def find(name: Path, where: str = "", believes: kept.Believes = kept.ours) -> Path:
    """The journal that a user means: a file, `latest`, or the name of a run in the history."""
    if name.exists():
        return name
    if str(name) != LATEST:
        found = None if name.parent.name else kept.find(name.name, where, believes)
        if found is None and not name.suffix:
            raise UsageError(f"there is no journal {name}", hint="a file, latest, or a run that `ondol history` names")
        return found or name
    known = [] if where else [Path(path) for _, path, _ in _ours()[:1]]
    newest = kept.latest(where, believes)
    known += [newest] if newest else []
    if not known:
        raise UsageError(f"there is no journal in {where or folder()}", hint="ondol report FILE")
    return max(known, key=lambda path: path.stat().st_mtime)


def clean(now: float, *, dry_run: bool = False) -> list[str]:
    """Remove what is too old, too many or too much; returns what it was."""
    gone, size = [], 0
    for number, (written, path, length) in enumerate(_ours()):
        size += length
        old = now - written
        if old > LONGEST or (old > _IN_USE and (number >= MOST or size > LARGEST)):
            gone.append(path)
            if not dry_run:
                files.unlink_quietly(path)
    return gone


def _ours() -> list[tuple[float, str, int]]:
    """(when written, path, size) of our journals, the newest first."""
    found, where = [], folder()
    try:
        here = files.open_private(where, make=False)
    except OSError:
        return []
    try:
        for name in os.listdir(here):
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if name.endswith(_SUFFIX) and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, os.path.join(where, name), status.st_size))
    except FileNotFoundError:
        pass  # another run cleans at this moment
    finally:
        os.close(here)
    return sorted(found, reverse=True)
