"""The threads of this process that a fork would lose: ended where their library can make them again, else named.

A library that registers handlers for a fork (OpenBLAS, jemalloc) ends its threads before one; GNU OpenMP ends them when
it is asked. Both make them again when they need them, with the same number, so nobody sees a difference.
"""

import ctypes
import os
import struct
import sys
import threading
import time
import traceback
from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

#: Parts of the names of OpenMP runtimes. The first ends its pool on request; the others look after a fork themselves,
#: and hang in one if their pool was ended before it.
GNU, OTHERS = "libgomp", ("libiomp5", "libomp")
#: Names of threads that their library makes again in a fork: jemalloc's purge memory, polars and pyarrow bring it.
_MADE_AGAIN = ("jemalloc_bg_thd",)
#: Parts of the names of drivers' libraries. Open device files are the evidence against them.
_DRIVERS = ("libcuda.so", "libnvidia", "libamdhip64", "libhsa-runtime64", "libze_", "libascendcl")
#: Found on every stack: they tell nothing about whose it is.
_EVERYBODYS = ("libc.so", "libc-", "libpthread", "libstdc++", "libm.so", "ld-", "ld.so", "libpython", "python")
#: Bytes of a thread's stack that are looked through for the library that waits there.
_DEPTH = 1 << 14
_GRACE = 0.3


class Native(NamedTuple):
    tid: int
    name: str
    library: str


class Mapping(NamedTuple):
    start: int
    end: int
    runs: bool
    path: str
    inode: int


def culprit(stack: Sequence[traceback.FrameSummary], root: str, library: Iterable[str]) -> str:
    """`conftest.py:12 (x = torch.ones(2, device="cuda"))`: the suite's innermost line, else the last outside these."""
    inside = [f for f in stack if f.filename.startswith(root + os.sep) and "site-packages" not in f.filename]
    outside = [f for f in stack if not any(part in f.filename for part in library)]
    if not inside and not outside:
        return ""
    chosen = (inside or outside)[-1]
    name = os.path.relpath(chosen.filename, root) if chosen in inside else chosen.filename
    return f"{name}:{chosen.lineno} ({(chosen.line or '').strip()[:80]})"


# ---------------------------------------------------------------------- ending


def end_pools() -> None:
    """Have libraries end what they can make again. To be called before a fork, by the thread that forks."""
    for path in libraries(GNU):
        pause = getattr(loaded(path), "omp_pause_resource_all", None)  # GCC ≥ 9
        if pause is not None:
            pause(1)
    # Handlers for a fork are the C library's, and only a fork calls them. Python's own, with what suites put there,
    # are for the real one.
    libc: Any = ctypes.PyDLL(None)
    pid = libc.fork()
    if pid == 0:
        libc._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)


def libraries(*names: str) -> list[str]:
    """The loaded libraries of these names."""
    found = {one.path for one in mappings() if one.runs and os.path.basename(one.path).startswith(names)}
    return sorted(found)


def loaded(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return None  # its file was replaced since


# ---------------------------------------------------------------------- naming


def lost() -> list[Native]:
    """Native threads that nobody would make again in a fork; their pools are ended first."""
    if len(os.listdir("/proc/self/task")) == threading.active_count():
        return []
    end_pools()
    deadline = time.monotonic() + _GRACE
    while (found := _left()) and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that was ended is in the list until the kernel has let go of it
    return found


def _left() -> list[Native]:
    python = {thread.native_id for thread in threading.enumerate()}
    mapped = mappings()
    own = _name(os.getpid())
    found = []
    for tid in map(int, os.listdir("/proc/self/task")):
        name = "" if tid in python else _name(tid)
        if name and name not in _MADE_AGAIN:
            one = Native(tid, name, _library(tid, mapped))
            if not _survives(one, own):
                found.append(one)
    return found


def _survives(thread: Native, own: str) -> bool:
    """torch's pool for quantised kernels, which has no name of its own, and OpenMP of LLVM and Intel.

    A driver that is loaded and has no device open may keep a thread; whether torch can use a device in a fork all the
    same is tried out (`fork_check`).
    """
    library = os.path.basename(thread.library)
    if library.startswith(_DRIVERS):
        return "torch" in sys.modules
    return library.startswith(OTHERS) or (thread.name == own and library == "libtorch_cpu.so")


def _name(tid: int) -> str:
    try:
        with open(f"/proc/self/task/{tid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""  # it has ended


def _library(tid: int, mappings: list[Mapping]) -> str:
    """The innermost library on the thread's stack that is not everybody's; empty where the kernel does not tell."""
    try:
        with open(f"/proc/self/task/{tid}/syscall") as file:
            pointer = int(file.read().split()[-2], 16)
    except (OSError, ValueError, IndexError):
        return ""  # it runs, or looking is forbidden
    stack = _at(pointer, mappings)
    words = (min(_DEPTH, stack.end - pointer) if stack else 0) // 8
    for (word,) in struct.iter_unpack("=Q", ctypes.string_at(pointer, words * 8)):
        code = _at(word, mappings)
        if code and code.runs and code.path and not os.path.basename(code.path).startswith(_EVERYBODYS):
            return code.path
    return ""


def mappings() -> list[Mapping]:
    found = []
    with open("/proc/self/maps") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            start, end = (int(number, 16) for number in fields[0].split("-"))
            path = fields[5].rstrip("\n") if len(fields) > 5 else ""
            found.append(Mapping(start, end, "x" in fields[1], path if path.startswith("/") else "", int(fields[4])))
    return found


def _at(address: int, mappings: list[Mapping]) -> Mapping | None:
    place = bisect(mappings, (address, sys.maxsize)) - 1
    return mappings[place] if place >= 0 and address < mappings[place].end else None


def described(threads: list[Native]) -> str:
    """`polars-0, tokio-rt-worker of polars_runtime_32`, by library."""
    names: dict[str, dict[str, None]] = {}
    for one in threads:
        names.setdefault(_package(one.library), {})[one.name] = None
    texts = []
    for library, some in names.items():
        more = f" and {len(some) - 3} more" if len(some) > 3 else ""
        texts.append(", ".join(list(some)[:3]) + more + (f" of {library}" if library else ""))
    return "; ".join(texts)


def _package(path: str) -> str:
    """Of an installed package its name, of anything else the file's."""
    _, found, inside = path.partition("-packages" + os.sep)
    return inside.split(os.sep)[0] if found else os.path.basename(path)
