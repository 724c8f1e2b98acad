"""Setting aside: what is bad is renamed, never deleted, into a folder that no tool looks into.

    <cache>/../.uv.ondol-aside-1000/20261115T053104Z-3f9a/archive-v0/yeiemTeKR8vQXcT9
                                                         /WHAT-IS-THIS.txt

Beside the cache where that is the same file system, else inside. One folder per user, so that nobody has to agree with
anybody about its permissions. It is bounded: the oldest go when there are too many, or after two weeks.
"""

from __future__ import annotations

import errno
import os
import time

from ondol.host import files

#: How many healings are kept, and for how long.
MOST = 20
LONGEST = 14 * 86400.0
NOTE = "WHAT-IS-THIS.txt"
INSIDE = ".ondol-aside-"


class Aside:
    """Where the bad entries of one healing go."""

    def __init__(self, cache: str, now: float) -> None:
        self._cache = cache
        self._stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        self._now = now
        #: The folder of this healing; empty before anything was moved into it.
        self.folder = ""

    def take(self, path: str) -> str:
        """Move something out of the cache; returns where it is now. Raises `OSError` if we may not."""
        try:
            target = os.path.join(self._made(), os.path.relpath(path, self._cache))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(path, target)
            return target
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EXDEV, errno.EROFS):
                raise
        # Another user's directory cannot change its parent, but it can change its name.
        folder = os.path.dirname(path)
        target = os.path.join(folder, f"{INSIDE}{self._stamp}-{files.random_name()[:8]}")
        os.rename(path, target)
        return target

    def explain(self, text: str) -> None:
        """Leave a word for whoever finds the folder."""
        try:
            files.write_new(os.path.join(self.folder, NOTE), text.encode(), 0o644, sync=False)
        except OSError:
            pass  # the same was said on the terminal

    def clean(self) -> None:
        """Remove what has been lying here for too long, or is too much."""
        if not self.folder:
            return
        base = os.path.dirname(self.folder)
        oldest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now - LONGEST))
        names = sorted(os.listdir(base), reverse=True)
        for number, name in enumerate(names):
            if number >= MOST or name < oldest:
                files.remove_tree(os.path.join(base, name))

    def _made(self) -> str:
        if not self.folder:
            self.folder = _first_that_works(self._bases(), f"{self._stamp}-{files.random_name()[:8]}")
        return self.folder

    def _bases(self) -> list[str]:
        above, name = os.path.split(self._cache)
        inside = os.path.join(self._cache, f"{INSIDE}{os.geteuid()}")
        if os.stat(above).st_dev != os.stat(self._cache).st_dev:
            return [inside]  # a mount point: nothing can be renamed to the outside
        return [os.path.join(above, f".{name}.ondol-aside-{os.geteuid()}"), inside]


def _first_that_works(bases: list[str], name: str) -> str:
    trouble: OSError | None = None
    for base in bases:
        try:
            files.check_private(base, make=True)
            path = os.path.join(base, name)
            os.mkdir(path, 0o700)
            return path
        except OSError as error:
            trouble = error
    raise trouble or OSError(errno.ENOENT, "no place")


#: What a path was when it was examined, so that a healthy successor is not taken in its place.
Identity = tuple[int, int, int]


def identity(path: str) -> Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def everything(cache: str, but: tuple[str, ...]) -> list[str]:
    """What to take if the whole cache must go: its contents. The directory stays, and with it the lock on it."""
    names = [name for name in sorted(os.listdir(cache)) if name not in but and not name.startswith(".ondol-")]
    return [os.path.join(cache, name) for name in names]
