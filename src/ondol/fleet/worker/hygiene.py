"""What an item left behind in a warm worker: found after every item, for less than a millisecond, and named.

Every check compares two cheap snapshots. What a wider fixture (class, module, session) sets up during the item is its
own business: `absorb` makes that part of the normal state. When one is finished, what it puts back is excused too.
"""

import _signal
import ctypes
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ondol.fleet import known_leftovers, threads
from ondol.fleet.fork_check import DEVICE_FILES
from ondol.host import proctree

#: Growth of one item that is worth a word.
RSS_LIMIT = 512 << 20
DEVICE_LIMIT = 256 << 20
#: Set by pytest itself around every phase.
IGNORED_ENV = frozenset({"PYTEST_CURRENT_TEST", "PYTEST_VERSION"})
#: Opened once by runtimes and kept on purpose.
#: The last: memory that CUDA shares with processes that a test starts; the driver keeps it to the end.
IGNORED_FILES = ("/dev/null", "/dev/urandom", "/dev/random", "anon_inode:", *DEVICE_FILES, "/dev/shm/cuda.shm.")
#: What lies under os.environ: copying it does not decode every value after every item.
_ENVIRONMENT: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Dirt(NamedTuple):
    """One thing left behind."""

    kind: str
    what: str


@dataclass
class Snapshot:
    """The process at one moment."""

    fds: frozenset[str]
    threads: frozenset[int]
    children: frozenset[int]
    env: dict[Any, Any]
    cwd: str
    path: tuple[str, ...]
    handlers: tuple[Any, ...]
    rss: int
    device_memory: int


def take() -> Snapshot:
    return Snapshot(
        fds=_fds(),
        threads=frozenset(t.ident or 0 for t in threading.enumerate()),
        children=_children(),
        env=dict(_ENVIRONMENT),
        cwd=_cwd(),
        path=tuple(sys.path),
        handlers=tuple(map(_signal.getsignal, range(1, 32))),
        rss=_rss(),
        device_memory=_device_memory(),
    )


class _Descriptors:
    """Open ones, without that which listing them needs: the next file opened would get its number."""

    def __init__(self) -> None:
        self._listed: list[str] = []
        self._open: frozenset[str] = frozenset()
        self._listing = -1

    def __call__(self) -> frozenset[str]:
        listed = os.listdir("/proc/self/fd")
        # The same list by the same descriptor: then nothing is different, and none of them need be looked at. That
        # saves 50 µs an item, a tenth of what a trivial test takes.
        if listed != self._listed or _is_open(self._listing):
            self._listed, self._open = listed, frozenset(name for name in listed if _is_open(int(name)))
            self._listing = next((int(name) for name in listed if name not in self._open), -1)
        return self._open


_fds = _Descriptors()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _children() -> frozenset[int]:
    """One call when there are none, which is what most items leave."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    return frozenset(proctree.children(os.getpid()))


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "(deleted)"


def _rss() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(128).split()[1]) * _PAGE


def _device_memory() -> int:
    """What torch holds on the device; a counter of its own, so asking costs nothing and initialises nothing."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        return int(cuda.memory_allocated()) if cuda is not None and cuda.is_initialized() else 0
    except Exception:
        return 0  # a poisoned context answers with an error; the device check says so


class _PhdrInfo(ctypes.Structure):
    _fields_ = (
        ("addr", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("phdr", ctypes.c_void_p),
        ("phnum", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p)


_COUNTED = [0, 0]
_LIBC = ctypes.CDLL(None)


def _first(info: Any, _size: int, _data: Any) -> int:
    _COUNTED[0], _COUNTED[1] = info.contents.adds, info.contents.subs
    return 1


_FIRST = _CALLBACK(_first)


def loaded_libraries_counter() -> tuple[int, int]:
    """How often the loader mapped and unmapped something; equal means that nothing was loaded since."""
    _LIBC.dl_iterate_phdr(_FIRST, None)
    return _COUNTED[0], _COUNTED[1]


@dataclass
class Libraries:
    """Mapped libraries whose path leads to another file now: a later `dlopen` of it gets the old code. A file that was
    removed after loading, as TileLang does with each of its kernels, misleads nobody.
    """

    counter: tuple[int, int] = (-1, -1)
    #: Path → inodes of what was loaded from it.
    mapped: dict[str, set[int]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def stale(self) -> list[str]:
        counter = loaded_libraries_counter()
        if counter != self.counter:
            self.counter = counter
            self.mapped = _mapped_outside_the_system()
        found = [path for path, inodes in self.mapped.items() if path not in self.told and _replaced(path, inodes)]
        self.told.update(found)
        return found


def _mapped_outside_the_system() -> dict[str, set[int]]:
    system = ("/usr/", "/lib", sys.prefix, sys.base_prefix, "/dev/", "/memfd:", "/SYSV")
    found: dict[str, set[int]] = {}
    for one in threads.mappings():
        path = one.path.removesuffix(" (deleted)")
        if one.runs and path and not path.startswith(system):
            found.setdefault(path, set()).add(one.inode)
    return found


def _replaced(path: str, inodes: set[int]) -> bool:
    try:
        # Overlay and some network file systems show another device number in maps than in stat: the inode decides.
        return os.stat(path).st_ino not in inodes
    except OSError:
        return False


def absorb(baseline: Snapshot, before: Snapshot, after: Snapshot) -> Snapshot:
    """The baseline, with what changed between two moments taken as normal."""
    env = {name: value for name, value in baseline.env.items() if name in after.env or name not in before.env}
    env.update({name: value for name, value in after.env.items() if before.env.get(name) != value})
    handlers = zip(baseline.handlers, before.handlers, after.handlers, strict=True)
    return Snapshot(
        fds=baseline.fds | (after.fds - before.fds),
        threads=baseline.threads | (after.threads - before.threads),
        children=baseline.children | (after.children - before.children),
        env=env,
        cwd=after.cwd if after.cwd != before.cwd else baseline.cwd,
        path=after.path if after.path != before.path else baseline.path,
        handlers=tuple(a if a is not b else base for base, b, a in handlers),
        rss=baseline.rss + max(0, after.rss - before.rss),
        device_memory=baseline.device_memory + max(0, after.device_memory - before.device_memory),
    )


def compare(before: Snapshot, after: Snapshot, *, finished_wide: bool) -> list[Dirt]:
    """What is there now that was not there before."""
    dirt, owners = _new_threads_and_children(before, after)
    opened = _opened(before, after)
    # A driver that was opened for the first time keeps pipes, sockets and hundreds of megabytes of its own.
    driver = any(target.startswith(DEVICE_FILES) for target in opened.values())
    ignored = IGNORED_FILES + (("pipe:", "socket:") if driver else ())
    ignored += ("pipe:",) if any(known.pipes for known in owners) else ()
    dirt += [Dirt("descriptor", f"{n} → {target}") for n, target in opened.items() if not target.startswith(ignored)]
    dirt += [
        Dirt("descriptor", f"closed standard descriptor {n}") for n in sorted(before.fds - after.fds) if int(n) < 3
    ]
    if after.rss - before.rss > RSS_LIMIT and not driver:
        dirt.append(Dirt("memory", f"resident memory grew by {(after.rss - before.rss) >> 20} MiB"))
    if after.device_memory - before.device_memory > DEVICE_LIMIT:
        dirt.append(Dirt("device memory", f"grew by {(after.device_memory - before.device_memory) >> 20} MiB"))
    if after.cwd != before.cwd:
        dirt.append(Dirt("cwd", f"{before.cwd} → {after.cwd}"))
    return dirt if finished_wide else dirt + _changed(before, after)


def _changed(before: Snapshot, after: Snapshot) -> list[Dirt]:
    """What is different, and may be so because a wider fixture put it back."""
    dirt = _changed_env(before.env, after.env) + _handlers(before.handlers, after.handlers)
    if after.path != before.path:
        new = [p for p in after.path if p not in before.path and not p.endswith(known_leftovers.DIRECTORIES)]
        gone = [p for p in before.path if p not in after.path]
        told = [f"{word} {these}" for word, these in (("added", new), ("removed", gone)) if these]
        dirt += [Dirt("sys.path", ", ".join(told))] if told else []
    return dirt


def _new_threads_and_children(before: Snapshot, after: Snapshot) -> tuple[list[Dirt], list[known_leftovers.Known]]:
    """What an item left, and whose habits the rest is."""
    dirt, owners = [], []
    new = after.threads - before.threads
    names = [t.name for t in threading.enumerate() if t.ident in new - known_leftovers.pooled_threads()] if new else []
    children = [pid for pid in after.children - before.children if proctree.alive(pid)]
    found = [(known_leftovers.of_thread(name), Dirt("thread", name)) for name in names]
    found += [
        (known_leftovers.of_child(proctree.command(pid)), Dirt("child", proctree.describe(pid))) for pid in children
    ]
    for known, one in found:
        if known is None:
            dirt.append(one)
        else:
            owners.append(known)
    return dirt, owners


def _opened(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """New descriptors, and what they lead to."""
    found = {}
    for number in sorted(after.fds - before.fds, key=int):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the listing's own descriptor
    return found


def _changed_env(before: dict[Any, Any], after: dict[Any, Any]) -> list[Dirt]:
    if before == after:
        return []
    changed = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
    names = {os.fsdecode(name) for name in changed} - IGNORED_ENV
    names -= {name for name in names & known_leftovers.VARIABLES if os.fsencode(name) not in before}
    return [Dirt("environment", name) for name in sorted(names)]


def _handlers(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[Dirt]:
    changed = [n for n, (a, b) in enumerate(zip(before, after, strict=True), start=1) if a is not b and a != b]
    return [Dirt("signal handler", signal.Signals(n).name) for n in changed]


def mend(before: Snapshot, tmpdir: str) -> list[Dirt]:
    """Put back what the next item cannot live without: a working directory and a TMPDIR."""
    found: list[Dirt] = []
    if not os.path.isdir(tmpdir):
        os.makedirs(tmpdir, mode=0o700, exist_ok=True)
        found.append(Dirt("tmpdir", f"{tmpdir} was deleted; made again"))
    if _cwd() != before.cwd and os.path.isdir(before.cwd):
        os.chdir(before.cwd)
    return found
