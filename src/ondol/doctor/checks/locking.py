"""Locks, tried out with two processes: whether there are any, and whether the second is really kept out."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator

from ondol.doctor.api import ERROR, WARNING, Check, Finding, look
from ondol.doctor.probing import ask_another_process, corner, name_of
from ondol.doctor.subject import CACHE, HOME, TEMPORARY, Subject
from ondol.host import files

Lock = Callable[[int], None]
#: The two kinds that tools use, and who does.
_KINDS: dict[str, tuple[Lock, str]] = {
    "flock": (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), "uv, filelock (Inductor, FlashInfer), ccache"),
    "fcntl": (lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), "SQLite (cuTile, MIOpen), NFS-aware tools"),
}
#: What the second process answers, beside an errno.
_GOT_IT = 0


class Locking(Check):
    name = "locking"
    summary = "file locks that fail (ENOLCK, ENOSYS, 524 …) or that two processes get at once, tried out with two"
    roles = frozenset({CACHE, HOME, TEMPORARY})

    def run(self, subject: Subject) -> Iterator[Finding]:
        try:
            with corner(subject.real) as probe:
                troubles = [(kind, _try(probe, kind)) for kind in _KINDS]
        except OSError:
            return  # nothing can be made there: other checks say so
        for kind, trouble in troubles:
            if trouble:
                what = f"{kind} locks do not work in {subject.path}: {trouble}"
                why = f"used by {_KINDS[kind][1]}: they fail there, or two of them write at once"
                severity = ERROR if CACHE in subject.roles else WARNING
                yield Finding(self.name, severity, what, look(subject.path), why, _fix(subject))


def _fix(subject: Subject) -> str:
    """The only thing that a user can do about a file system: not to keep such a cache on it."""
    if subject.tool:
        return f"export {subject.tool.variables[0]}=/tmp/{subject.tool.name}-$(id -u)"
    return "export UV_CACHE_DIR=/tmp/uv-$(id -u) XDG_CACHE_HOME=/tmp/cache-$(id -u)"


def _try(probe: str, kind: str) -> str:
    """What is wrong with this kind of lock, or empty."""
    path = os.path.join(probe, kind)
    files.write_new(path, b"lock", 0o600, sync=False)
    lock, _ = _KINDS[kind]
    first = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            lock(first)
        except OSError as error:
            return f"locking fails with {name_of(error)}"
        answer = ask_another_process(lambda: _ask(path, lock))
        if answer == _GOT_IT:
            return "a second process gets the lock while the first one holds it"
        if answer not in (errno.EAGAIN, errno.EACCES):
            return f"a second process fails with {name_of(OSError(answer, ''))} instead of being told to wait"
    finally:
        os.close(first)
    answer = ask_another_process(lambda: _ask(path, lock))
    return "" if answer == _GOT_IT else "the lock stays taken after its holder has let go"


def _ask(path: str, lock: Lock) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        lock(fd)
    except OSError as error:
        return error.errno or -1
    return _GOT_IT
