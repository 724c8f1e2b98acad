"""The processes below a process, read from /proc: who they are, what they wait for, how much memory they have,
whether they catch a signal; and what a process can ask the kernel for itself."""

import ctypes
import os
import signal
from collections.abc import Collection

from ondol.foreign_text import is_number
from ondol.host import process

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIBC = ctypes.CDLL(None, use_errno=True)  # once: opened anew, it costs every fork a third of a millisecond
_STATES = {"R": "running", "S": "sleeping", "D": "unkillable for now", "T": "stopped", "t": "traced", "Z": "ended"}


def children(pid: int) -> list[int]:
    """Direct children, of every thread; empty when the process is gone."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in process.read(f"/proc/{pid}/task/{task}/children").split()]


def descendants(pid: int, but: Collection[int] = ()) -> list[int]:
    """All processes below `pid`, parents before children; `but` these children of it and what is below them."""
    found: list[int] = []
    queue = [child for child in children(pid) if child not in but]
    while queue:
        one = queue.pop(0)
        if one not in found:
            found.append(one)
            queue += children(one)
    return found


def state(pid: int) -> str:
    """The kernel's one letter: R, S, D, Z …; empty when there is no such process."""
    return (process.status(pid) or [""])[0]


def alive(pid: int) -> bool:
    """Running or able to run: a zombie is dead and only waits to be counted."""
    return state(pid) not in {"", "Z", "X"}


def catches(pid: int, number: int) -> bool:
    """Whether the process has its own handler for the signal, so that sending it cannot kill."""
    lines = process.read(f"/proc/{pid}/status").splitlines()
    masks = {line.split(":")[0]: line.split()[-1] for line in lines if line.startswith("Sig")}
    return bool(int(masks.get("SigCgt", "0"), 16) >> (number - 1) & 1)


def command(pid: int) -> str:
    """Its command line; empty when there is no such process."""
    return process.read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def describe(pid: int) -> str:
    """One line about a process that will not die, or that was left behind."""
    name, waits = command(pid)[:120], process.read(f"/proc/{pid}/wchan")
    where = f" in {waits}" if waits not in {"", "0"} else ""  # 0: it does not wait
    return f"pid {pid}, {_STATES.get(state(pid), 'gone')}{where}" + (f": {name}" if name else "")


def prctl(option: int, value: int) -> bool:
    """True when the kernel agreed."""
    return bool(_LIBC.prctl(option, value, 0, 0, 0) == 0)


def become_subreaper() -> bool:
    """Orphans below us become our children instead of init's, so that none can escape by forking twice."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel for `number` when the parent dies; exits at once when it is dead already."""
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def resident(pid: int) -> int:
    """Bytes; 0 when it is gone."""
    fields = process.read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def free_memory() -> int:
    """Bytes that can be had without swapping."""
    lines = [line.split() for line in process.read("/proc/meminfo").splitlines()]
    here = next((int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"), 0)
    group = "/sys/fs/cgroup" + process.read("/proc/self/cgroup").partition("::")[2].strip()
    limit, used = process.read(f"{group}/memory.max").strip(), process.read(f"{group}/memory.current").strip()
    return min(here, int(limit) - int(used)) if is_number(limit) and is_number(used) else here
