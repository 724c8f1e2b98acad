"""What dead processes left behind: torch's build lock, for which everybody else waits for ever, and our own probes.

torch up to 2.13 makes an empty file `lock` in an extension's build directory and keeps it open while it builds; who
finds it waits until it is gone. A build that was killed leaves it, and every later job hangs without a word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ondol.doctor import commands
from ondol.doctor.api import ERROR, NOTE, Check, Finding, Repair
from ondol.doctor.probing import PREFIX
from ondol.doctor.subject import CACHE, Subject
from ondol.doctor.walk import Seen
from ondol.host import files, filesystem
from ondol.words import age, is_number, plural

_LOCK, _BUILD_FILE, _TORCH = "lock", "build.ninja", b"TORCH_EXTENSION_NAME"
_MAX_BUILD_FILE = 1 << 20
#: The kernel's own number for the pid namespace in which every process of the machine is seen.
_ALL_PROCESSES = "pid:[4026531836]"
#: No build and no probe takes so long; after this nobody is at it, seen or not.
_LONG_AGO = 24 * 3600.0


class Orphans(Check):
    name = "orphans"
    summary = "torch extension locks whose maker is gone, for which every later build waits for ever"
    roles = frozenset({CACHE})
    walks = True
    fixes = "removes own lock files whose makers are certainly gone"

    def run(self, subject: Subject) -> Iterator[Finding]:
        tree = subject.tree
        builds = {entry.name.rpartition("/")[0] for entry in tree.entries if entry.name.endswith("/" + _BUILD_FILE)}
        for entry in tree.entries:
            folder, _, base = entry.name.rpartition("/")
            if base == _LOCK and folder in builds and _is_baton(subject, entry, folder) and _is_left(subject, entry):
                yield self._lock(subject, entry)
        yield from self._probes(subject)

    def _lock(self, subject: Subject, entry: Seen) -> Finding:
        path = subject.tree.full(entry)
        ours = entry.uid == subject.machine.uid
        what = f"a build lock of torch, {age(time.time() - entry.modified)} old, that no process on this machine holds"
        why = "every job that builds this extension waits for it, for ever and in silence (torch up to 2.13)"
        fix = f"rm {commands.quote(path)}"
        gone = ours and _certainly_gone(subject, entry)
        repairs = (Repair("remove", path, entry.device, entry.inode, written_ns=entry.modified_ns),) if gone else ()
        fix = fix if ours else commands.as_root(subject.machine.uid, fix)
        return Finding(self.name, ERROR, what, subject.tree.place(entry), why, fix, 1, repairs)

    def _probes(self, subject: Subject) -> Iterator[Finding]:
        """A doctor that was killed, or left behind on a file system that hung, leaves what it was trying out."""
        now = time.time()
        left = [
            entry
            for entry in subject.tree.entries
            if entry.name.startswith(PREFIX) and "/" not in entry.name and now - entry.modified > _LONG_AGO
        ]
        ours = [entry for entry in left if entry.uid == subject.machine.uid]
        if ours:
            paths = [subject.tree.full(entry) for entry in ours]
            what = f"{plural(len(ours), 'probe')} that an interrupted `ondol doctor` left"
            fix = f"rm -r {commands.paths(paths[:20])}"
            where = subject.tree.place(ours[0])
            yield Finding(self.name, NOTE, what, where, "harmless, and in the way", fix, len(ours))


def _is_baton(subject: Subject, entry: Seen, folder: str) -> bool:
    """torch's kind of lock: an empty file whose presence is the lock. Beside other build files a `lock` is flocked."""
    if not entry.is_file or entry.size:
        return False
    try:
        data, _ = files.read_regular(os.path.join(subject.tree.path, folder, _BUILD_FILE), _MAX_BUILD_FILE)
    except OSError:
        return False
    return _TORCH in data


def _is_left(subject: Subject, entry: Seen) -> bool:
    if entry.uid != subject.machine.uid != 0:
        # Another user's processes do not show us their files: only age can tell.
        return time.time() - entry.modified > _LONG_AGO
    return not _is_held(entry)


def _is_held(entry: Seen) -> bool:
    """Whether a process that we may look at has it open."""
    for pid in filter(is_number, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                link = f"/proc/{pid}/fd/{fd}"
                # By name first: asking every open file of the machine for its inode would touch dead file systems.
                if os.path.basename(os.readlink(link)) == _LOCK:
                    status = os.stat(link)
                    if (status.st_dev, status.st_ino) == (entry.device, entry.inode):
                        return True
        except OSError:
            continue  # not ours to look at, or it ended
    return False


def _certainly_gone(subject: Subject, entry: Seen) -> bool:
    """Nobody here holds it. Somebody may elsewhere: on another machine, or in a container that we cannot look into."""
    if time.time() - entry.modified > _LONG_AGO:
        return True
    if filesystem.is_network(subject.mount.kind):
        return False
    try:
        return os.readlink("/proc/self/ns/pid") == _ALL_PROCESSES
    except OSError:
        return False
