"""Setting aside: what is bad is renamed, never deleted, into a folder that no tool looks into.

    <cache>/../.uv.ondol-aside-1000/20261115T053104Z-3f9a/archive-v0/yeiemTeKR8vQXcT9
                                                         /WHAT-IS-THIS.txt

Beside the cache where that is the same file system, else inside. One folder per user, so that nobody has to agree with
anybody about its permissions. It is bounded: the oldest go when there are too many, or after two weeks.
"""

import errno
import os
import time
from contextlib import suppress

from ondol.host import files

#: How many healings are kept, and for how long.
MOST = 20
LONGEST = 14 * 86400.0
NOTE = "WHAT-IS-THIS.txt"
INSIDE = ".ondol-aside-"


#: What a path was when it was examined, so that a healthy successor is not taken in its place.
Identity = tuple[int, int, int]


def identity_of(path: str) -> Identity | None:
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_ctime_ns


class SetAside:
    """Where the bad entries of one healing go. Raises `OSError` if the cache cannot be reached.

    The cache may be another user's, and we may be root: a directory in it that is swapped for a link must not make
    us move, or remove, anything elsewhere. So everything is done from open directories, and no link is passed.
    """

    def __init__(self, cache: str, now: float) -> None:
        self._cache = cache
        self._stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        self._now = now
        #: The folder of this healing; empty before anything was moved into it.
        self.folder = ""
        self._base = self._inside = -1
        self._top = files.open_way(cache)

    def take(self, path: str, known: Identity | None) -> str:
        """Move something out of the cache; returns where it is now, or nothing if something else has its name.

        Raises `OSError` if we may not.
        """
        relative = os.path.relpath(path, self._cache)
        above, name = os.path.split(relative)
        try:
            with files.opened(files.open_way(above, self._top)) as here:
                if known is None or _identity(os.stat(name, dir_fd=here, follow_symlinks=False)) != known:
                    return ""  # not what was examined: somebody mended it meanwhile
                return self._move(here, name, relative)
        except FileNotFoundError:
            return ""

    def _move(self, here: int, name: str, relative: str) -> str:
        try:
            self._make_folder()
            with files.opened(files.open_way(os.path.dirname(relative), self._inside, make=True)) as there:
                os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
            return os.path.join(self.folder, relative)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EXDEV, errno.EROFS):
                raise
        # Another user's directory cannot change its parent, but it can change its name.
        hidden = f"{INSIDE}{self._stamp}-{files.random_name()[:8]}"
        os.rename(name, hidden, src_dir_fd=here, dst_dir_fd=here)
        return os.path.join(self._cache, os.path.dirname(relative), hidden)

    def explain(self, text: str) -> None:
        """Leave a word for whoever finds the folder."""
        with suppress(OSError):  # the same was said on the terminal
            files.write_new(NOTE, text.encode(), 0o644, dir_fd=self._inside, sync=False)

    def clean(self) -> None:
        """Remove what has been lying here for too long, or is too much."""
        oldest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now - LONGEST))
        names = sorted(os.listdir(self._base), reverse=True)
        for number, name in enumerate(names):
            if number >= MOST or name < oldest:
                files.remove_below(self._base, name)

    def close(self) -> None:
        for fd in (self._top, self._base, self._inside):
            files.close_quietly(fd)

    def _make_folder(self) -> None:
        trouble: OSError | None = None
        for parent, name in [] if self.folder else self._bases():
            try:
                with files.opened(files.open_way(parent)) as above:
                    self._base = files.open_private(name, above, make=True)
                stamp = f"{self._stamp}-{files.random_name()[:8]}"
                os.mkdir(stamp, 0o700, dir_fd=self._base)
                self._inside = files.open_dir(stamp, self._base)
                self.folder = os.path.join(parent, name, stamp)
                return
            except OSError as error:
                trouble = error
        if trouble:
            raise trouble

    def _bases(self) -> list[tuple[str, str]]:
        above, name = os.path.split(self._cache)
        inside = (self._cache, f"{INSIDE}{os.geteuid()}")
        if os.stat(above).st_dev != os.fstat(self._top).st_dev:
            return [inside]  # a mount point: nothing can be renamed to the outside
        return [(above, f".{name}.ondol-aside-{os.geteuid()}"), inside]
