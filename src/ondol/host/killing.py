"""Ending processes for real: signals to a whole tree, stack dumps before that, and what a killed run left behind."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from ondol.foreign_text import is_number
from ondol.host import proctree
from ondol.host.process import Owner, certainly_dead

#: In the environment of everything that a node program starts: who did it.
OWNER_VARIABLE = "ONDOL_OWNER"
#: What asks a worker for the stacks of its Python threads. A real-time signal: no test suite uses it by accident.
DUMP_SIGNAL = signal.SIGRTMAX - 3

#: In the command line of a resource tracker, multiprocessing's or loky's, and how long one may clean up. On a busy
#: machine it is still starting when its worker dies, and nobody else knows what is to be unlinked.
_TRACKER = "resource_tracker import main"
_TRACKER_GRACE = 5.0


def send(pid: int, number: int) -> bool:
    """False when there is nobody to receive it."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_tree(pid: int, number: int, extra: Iterable[int] = ()) -> set[int]:
    """Signal the process, its group and everything below it, wherever it set up its own session."""
    targets = {pid, *proctree.descendants(pid), *extra}
    with suppress(ProcessLookupError, PermissionError):
        # The worker leads its own group; a member that we could not see yet is reached by this.
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
    for one in targets:
        send(one, number)
    return targets


def kill_all(pids: Iterable[int], own: int) -> None:
    """SIGKILL these and whatever they have forked meanwhile, until nothing new appears below `own`."""
    pending = {p for p in pids if proctree.alive(p)}
    # Python's resource trackers unlink what the others leave in /dev/shm, and end when those have ended.
    patience = time.monotonic() + 1.0
    trackers = {p for p in pending if _TRACKER in _command(p, patience)}
    pending -= trackers
    # A fork bomb makes new children while we kill: stopping first takes its hands away.
    for one in pending:
        send(one, signal.SIGSTOP)
    for _ in range(200):
        for one in pending:
            send(one, signal.SIGKILL)
        below = {d for one in pending for d in proctree.descendants(one)} | set(pids)
        pending = {p for p in below if p != own and proctree.alive(p)} - trackers
        if not pending:
            break
    deadline = time.monotonic() + _TRACKER_GRACE
    while any(map(proctree.alive, trackers)) and time.monotonic() < deadline:
        time.sleep(0.005)
    for one in trackers:
        send(one, signal.SIGKILL)


def _command(pid: int, patience: float) -> str:
    """A program that has just been started has no command line for a moment, which is long on a busy machine."""
    while not (command := proctree.command(pid)) and proctree.alive(pid) and time.monotonic() < patience:
        time.sleep(0.002)
    return command


def end_below(but: Collection[int] = ()) -> None:
    """Every process below this one, except these, now."""
    own = os.getpid()
    for _ in range(50):
        below = proctree.descendants(own, but=but)
        if not below:
            return
        kill_all(below, own)
        for pid in proctree.children(own):
            if pid not in but:
                reap(pid)


def reap(pid: int) -> None:
    """If it has ended."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def native_dump_command(pid: int) -> list[str] | None:
    """A debugger that can show where native code hangs, when one is installed."""
    if py_spy := shutil.which("py-spy"):
        return [py_spy, "dump", "--native", "--nonblocking", "--pid", str(pid)]
    if gdb := shutil.which("gdb"):
        return [gdb, "--batch", "--nx", "-p", str(pid), "-ex", "set pagination off", "-ex", "thread apply all bt 30"]
    return None


def start_native_dump(pid: int, output: int) -> subprocess.Popen[bytes] | None:
    """Start that debugger, writing to `output`; the caller bounds and ends it."""
    command = native_dump_command(pid)
    if command is None:
        return None
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return None


def say_status(status: int, maxrss: int = 0) -> str:
    """A wait status in words."""
    if not os.WIFSIGNALED(status):
        return f"the process ended itself with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    text = f"killed by {signal.Signals(number).name}" if number in set(signal.Signals) else f"killed by signal {number}"
    if number == signal.SIGKILL:
        peak = f" (it had {maxrss >> 10} MiB resident at its peak)" if maxrss else ""
        text += f", not by us; the kernel's out-of-memory killer does that{peak}"
    return text


def sweep_orphans() -> list[int]:
    """End what dead runs of this user left on this machine: found by the tag in their environment, ended only when the
    process that the tag names is certainly dead. Returns their pids.
    """
    found = [pid for pid in map(int, filter(is_number, os.listdir("/proc"))) if pid != os.getpid() and _orphan(pid)]
    kill_all(found, os.getpid())
    return found


def _orphan(pid: int) -> bool:
    try:
        # Root may read everybody's environment; what other users' runs leave is theirs to end.
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    wanted = f"{OWNER_VARIABLE}=".encode()
    for word in words:
        if word.startswith(wanted):
            owner = Owner.decode(word[len(wanted) :])
            return owner is not None and certainly_dead(owner)
    return False
