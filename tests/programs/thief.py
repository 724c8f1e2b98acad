"""A hostile command that looks for a key wherever the same user could find one: thief.py OUT TEST NEEDLE…

Its own environment and descriptors; environment, memory (by ptrace and by /proc/PID/mem) and descriptors of every
process below TEST (a process) or in the thief's own session, and of no other: being traced stops a process, and other
tests of this user must not be held up. Writes one line to OUT for each place where a needle was found.
"""

import ctypes
import os
import sys

out, test, needles = sys.argv[1], int(sys.argv[2]), [bytes.fromhex(word) for word in sys.argv[3:]]
found: list[str] = []
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def look(where: str, data: bytes) -> None:
    if any(needle in data for needle in needles):
        found.append(where)


def memory(pid: str) -> None:
    attached = libc.ptrace(PTRACE_ATTACH, int(pid), 0, 0) == 0
    try:
        if attached:
            os.waitpid(int(pid), 0x40000000)  # __WALL
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
            for line in maps:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                if "w" in line.split()[1] and end - start < 1 << 28:
                    try:
                        mem.seek(start)
                        look(f"memory of {pid}", mem.read(end - start))
                    except OSError:
                        continue
    finally:
        if attached:
            libc.ptrace(PTRACE_DETACH, int(pid), 0, 0)


def descriptors(pid: str) -> None:
    for number in os.listdir(f"/proc/{pid}/fd"):
        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
        look(f"descriptor {number} of {pid}", os.read(fd, 1 << 16))


def environment(pid: str) -> None:
    with open(f"/proc/{pid}/environ", "rb") as file:
        look(f"environment of {pid}", file.read())


def victims() -> list[str]:
    """Whom anybody may ask for: parent and session are public, whatever a process hides."""
    about = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                _, parent, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:  # gone
            continue
        about[int(name)] = int(parent), int(session)
    below = {test}
    while more := {pid for pid, (parent, _) in about.items() if parent in below} - below:
        below |= more
    chosen = below - {test} | {pid for pid, (_, session) in about.items() if session == os.getsid(0)}
    return [str(pid) for pid in chosen - {os.getpid()}]


look("own environment", repr(os.environ).encode())
for number in range(3, 64):
    try:
        look(f"own descriptor {number}", os.read(number, 1 << 16))
    except OSError:
        continue
for name in victims():
    for theft in (environment, memory, descriptors):
        try:
            theft(name)
        except OSError:
            continue
with open(out, "w") as file:
    file.write("".join(f"{line}\n" for line in sorted(set(found))))
