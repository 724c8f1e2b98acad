"""Which process is which: identity that survives pid reuse, reboots and pid namespaces."""

import os
from contextlib import suppress
from typing import NamedTuple

from ondol.foreign_text import is_number


class Owner(NamedTuple):
    """A process, told apart from any other that ever had or will have its pid."""

    pid: int
    start: str  # ticks since boot, from /proc: a reused pid has another one
    boot: str  # a pid of before the reboot proves nothing
    namespace: str  # pid 7 of another container is not our pid 7

    def encode(self) -> bytes:
        """For a file, or for the environment."""
        return " ".join([str(self.pid), self.start, self.boot, self.namespace]).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Owner | None":
        """The owner that was written, or None for bytes that say nothing (empty after a crash, foreign)."""
        words = data.decode("utf-8", "replace").replace("\n", " ").split(" ")  # earlier versions wrote lines
        if len(words) < 4 or not is_number(words[0], 9):
            return None
        return cls(int(words[0]), words[1], words[2], words[3])


def read(path: str) -> str:
    """A file of the kernel's about a process or the machine; empty if there is none (any more)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """When the process started, as an opaque word; empty if there is no such process (or no /proc)."""
    words = status(pid)
    return words[19] if len(words) > 19 else ""


def parent(pid: int) -> int:
    """0 if there is no such process, or none above it."""
    return int((status(pid) or "00")[1])


def status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on; empty if there is no such process."""
    # The second field is the program's name in parentheses and may hold anything, spaces and parentheses too.
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def boot_id() -> str:
    return read("/proc/sys/kernel/random/boot_id").strip()


def pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def myself() -> Owner:
    pid = os.getpid()
    return Owner(pid, start_time(pid), boot_id(), pid_namespace())


def certainly_dead(owner: Owner) -> bool:
    """True only with evidence. A process we cannot judge (another namespace, no /proc) counts as alive."""
    here = myself()
    if not here.boot or not owner.boot:
        return False
    if owner.boot != here.boot:
        return True
    if owner.namespace != here.namespace:
        return False
    fields = status(owner.pid)
    if len(fields) > 19:
        # Z, X: killed, and only its parent (a container without an init, a busy runner) has not noticed yet.
        return fields[19] != owner.start or fields[0] in ("Z", "X")
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def mentioned(needle: str, file: str = "environ") -> bool:
    """Whether any process that we may look at was started with this text in its environment.

    With `mountinfo`: has a mount with it in its source or place, as a container that stands in a room.
    """
    wanted = needle.encode()
    try:
        pids = [name for name in os.listdir("/proc") if is_number(name)]
    except OSError:
        return True  # nobody can be asked, so nobody is proven absent
    for pid in pids:
        if int(pid) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as opened:
            if wanted in opened.read():
                return True
    return False
