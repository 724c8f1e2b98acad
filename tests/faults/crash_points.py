"""Stops a process at any of its system calls: killed before, after or half-way through it, or told that it failed.

A process runs an operation with `os` wrapped. The N-th call of the wrapped kinds is the *point*; counting goes on in
processes that it forks. Only the store's and the room's own calls count: pipes between our processes do not.
"""

from __future__ import annotations

import errno
import gc
import json
import mmap
import os
import signal
import stat
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

#: Calls that change something, or that a change rests on.
CHANGING = (
    *("open", "write", "fchmod", "chmod", "fchown", "chown", "fsync", "close", "link", "unlink", "mkdir", "rename"),
    *("replace", "rmdir", "utime", "symlink", "truncate", "ftruncate"),
)
#: Calls that only look: a kill there is a kill at the next change, but an error there is an error of its own.
LOOKING = ("read", "listdir", "scandir", "stat", "lstat", "fstat")
#: What needs space, inodes or a writable file system.
GROWING = frozenset({"open", "write", "mkdir", "link", "rename", "symlink", "fsync"})
#: What an NFS server can have done although its reply was lost.
ANSWERED = ("link", "unlink", "mkdir", "rename", "rmdir")

FINISHED, REFUSED, CRASHED, KILLED = "finished", "refused", "crashed", "killed"


class Point(NamedTuple):
    """Where and how to strike. Numbers start at 1."""

    #: before, after, torn: SIGKILL. error: the call fails. lost: it succeeds and says that it failed. full: it and all
    #: later ones that need space fail. gone: it and all later ones fail.
    how: str
    number: int
    error: int = 0
    calls: tuple[str, ...] = CHANGING

    def __str__(self) -> str:
        return f"{self.how} call {self.number}" + (f" ({errno.errorcode[self.error]})" if self.error else "")


class Ended(NamedTuple):
    how: str
    #: How many calls of the wrapped kinds were made.
    calls: int
    #: What the operation returned, or how it failed.
    value: Any
    #: The call that was struck, for messages.
    struck: str


#: How many points were tried in this run of the tests, by kind.
TALLY = {"kills": 0, "errors": 0}


def run(operation: Callable[[], Any], point: Point | None = None, refusals: tuple[type[Exception], ...] = ()) -> Ended:
    """Run an operation in a child, struck at a point. `refusals` are the errors that its contract allows."""
    with mmap.mmap(-1, 4096) as shared:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(operation, point, refusals, shared, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how, value = json.loads(said) if said else (KILLED if code == -signal.SIGKILL else CRASHED, code)
        return _ended(how, value, point, shared)


def run_here(operation: Callable[[], Any], point: Point, refusals: tuple[type[Exception], ...] = ()) -> Ended:
    """The same for an error, in a process that lives on after it, as a long job does: this one."""
    with mmap.mmap(-1, 4096) as shared:
        with interposed(point, shared):
            how, value = _attempt(operation, refusals)
        return _ended(how, value, point, shared)


def _ended(how: str, value: Any, point: Point | None, shared: mmap.mmap) -> Ended:
    struck = bytes(shared[8:64]).rstrip(b"\0").decode()
    if point and struck:
        TALLY["errors" if point.error else "kills"] += 1
    return Ended(how, int.from_bytes(shared[:8], "little"), value, struck)


def _attempt(operation: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> tuple[str, Any]:
    try:
        return FINISHED, operation()
    except refusals as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    except Exception:
        return CRASHED, traceback.format_exc()


def _child(
    operation: Callable[[], Any],
    point: Point | None,
    refusals: tuple[type[Exception], ...],
    shared: mmap.mmap,
    pipe: int,
) -> None:
    write = os.write
    gc.disable()  # a collection would touch, and so copy, every page that we share with our parent
    try:
        with interposed(point or Point("count", 0), shared):
            answer = _attempt(operation, refusals)
        write(pipe, json.dumps(answer).encode())
    finally:
        os._exit(0)


@contextmanager
def interposed(point: Point, shared: mmap.mmap) -> Iterator[None]:
    """Wrap `os` in this process. The count lives in shared memory: helpers that we fork count on."""
    lock = threading.Lock()
    fstat = os.fstat
    before = {name: getattr(os, name) for name in point.calls}

    def is_pipe(fd: object) -> bool:
        try:
            return isinstance(fd, int) and not stat.S_ISREG(mode := fstat(fd).st_mode) and not stat.S_ISDIR(mode)
        except OSError:
            return False

    def next_number(name: str) -> int:
        with lock:
            number = int.from_bytes(shared[:8], "little") + 1
            shared[:8] = number.to_bytes(8, "little")
            if number == point.number:
                shared[8:64] = name.encode().ljust(56, b"\0")
            return number

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if name in ("write", "close", "read", "fstat") and is_pipe(arguments[0]):
                return real(*arguments, **options)
            number = next_number(name)
            if number == point.number or (number > point.number and point.how in ("full", "gone")):
                return _strike(point, name, real, arguments, options)
            return real(*arguments, **options)

        return call

    for name in point.calls:
        setattr(os, name, wrap(name, before[name]))
    try:
        yield
    finally:
        for name, real in before.items():
            setattr(os, name, real)


def _strike(point: Point, name: str, real: Callable[..., Any], arguments: Any, options: Any) -> Any:
    if point.how == "torn":
        fd, data = arguments
        real(fd, bytes(data)[: len(data) // 2])
    if point.how in ("before", "torn"):
        os.kill(os.getpid(), signal.SIGKILL)
    if point.how == "full" and (name not in GROWING or (name == "open" and not arguments[1] & os.O_CREAT)):
        return real(*arguments, **options)
    # A descriptor is closed even if close reports an error: Linux never leaves it open.
    answer = real(*arguments, **options) if point.how in ("after", "lost", "count") or name == "close" else None
    if point.how == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    if point.error:
        raise OSError(point.error, os.strerror(point.error))
    return answer
