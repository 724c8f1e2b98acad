"""The processes below a process, read from /proc: who they are, what they wait for, whether they catch a signal."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: ioprio_set, where its number is known; (a process, this one, the idle class).
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IDLE = (1, 0, 3 << 13)


def _read(name: str) -> str:
    """Not by pathlib: `ondol run` would wait for its import before every command."""
    with open(f"/proc/{name}", "rb", buffering=0) as file:
        return file.readall().decode(errors="replace")


def children(pid: int) -> list[int]:
    """Direct children, of every thread; empty when the process is gone."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            found += map(int, _read(f"{pid}/task/{task}/children").split())
        except OSError:
            continue  # that thread ended while we looked
    return found


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
    try:
        text = _read(f"{pid}/stat")
    except OSError:
        return ""
    # The name may hold spaces and brackets: the fields start after the last one.
    return text.rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Running or able to run: a zombie is dead and only waits to be counted."""
    return state(pid) not in {"", "Z", "X"}


def catches(pid: int, number: int) -> bool:
    """Whether the process has its own handler for the signal, so that sending it cannot kill."""
    try:
        lines = _read(f"{pid}/status").splitlines()
    except OSError:
        return False
    masks = {line.split(":")[0]: line.split()[-1] for line in lines if line.startswith("Sig")}
    return bool(int(masks.get("SigCgt", "0"), 16) >> (number - 1) & 1)


def command(pid: int) -> str:
    """Its command line; empty when there is no such process."""
    try:
        return _read(f"{pid}/cmdline").replace("\0", " ").strip()
    except OSError:
        return ""


def describe(pid: int) -> str:
    """One line about a process that will not die."""
    try:
        waits = _read(f"{pid}/wchan")
    except OSError:
        waits = "?"
    return f"pid {pid}, state {state(pid) or 'gone'}, in {waits or '?'}: {command(pid)[:120]}"


def prctl(option: int, value: int) -> bool:
    """True when the kernel agreed; other systems do not have it."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def become_subreaper() -> bool:
    """Orphans below us become our children instead of init's, so that none can escape by forking twice."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def give_way() -> None:
    """From now on this process gets what no other one wants, of processor and disk."""
    os.nice(19)
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is not None and sys.platform == "linux":
        ctypes.CDLL(None).syscall(number, *_IDLE)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel for `number` when the parent dies; exits at once when it is dead already."""
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)
