"""What lies in a tool's cache: broken entries, and what dead processes left.

torch up to 2.13 makes an empty file `lock` in an extension's build directory and keeps it open while it builds; who
finds it waits until it is gone. A build that was killed leaves it, and every later job hangs without a word.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from ondol.doctor import commands, releases
from ondol.doctor.api import ERROR, NOTE, WARNING, Finding, Repair, look
from ondol.doctor.subject import Subject
from ondol.doctor.walk import Seen
from ondol.foreign_text import is_number
from ondol.host import files, filesystem, identity
from ondol.tools import registry
from ondol.tools.api import CacheDir, Refused
from ondol.units import age, plural
from ondol.units import entries as counted

#: What a tool's `scan` says → (how bad, what it does to a job). Entries that cannot be read are the owners' business.
_KINDS = {
    "torn": (WARNING, "a tool that takes it for a hit fails when it loads it; some notice, and compile again"),
    "mixed": (WARNING, "files of two writers: the tool may load code with the wrong metadata"),
    "outside": (WARNING, "it points at files elsewhere: those are read, or if they are gone it is a silent miss"),
    "incomplete": (WARNING, "a writer was killed, or files were trimmed one by one; some tools crash on it"),
    "unknown": (NOTE, "not an entry of this tool; it is never cleaned up"),
}
#: A younger one may be in the making.
_SETTLED = 600.0
#: How many paths one command names at most.
_MOST = 50
#: Half of what the check may take.
_LOOKING = 60.0


def entries(subject: Subject) -> Iterator[Finding]:
    """Torn, incomplete, mixed and misplaced entries in the caches of tools that Ondol understands."""
    if subject.tool is None or subject.tool.sharing == "E":
        return  # a tool with a protocol of its own looks after its entries itself
    groups: dict[tuple[str, bool], list[Refused]] = {}
    deadline = time.monotonic() + min(subject.bounds.seconds, _LOOKING)
    scanned = registry.load(subject.tool).scan(CacheDir(subject.real, ours=False), identity.this_host())
    for looked, item in enumerate(scanned, start=1):
        if isinstance(item, Refused) and item.kind in _KINDS and not _spared(subject, item):
            groups.setdefault((item.kind, "/" in item.place), []).append(item)
        if looked >= subject.bounds.entries or time.monotonic() > deadline:
            what = f"only the first {counted(looked)} of {subject.path} were checked"
            yield Finding(NOTE, what, look(subject.path), "a fault beyond is not in this report")
            break
    for (kind, _), items in groups.items():
        severity, why = _judge(subject, items[0])
        places = list(dict.fromkeys(_entry(subject, item) for item in items))
        what = f"{plural(len(items), f'{kind} entry', f'{kind} entries')} in {subject.path}: {items[0].why}"
        where = look(os.path.join(subject.real, items[0].place))
        fix = subject.as_owner(where.owner, f"rm -r {commands.paths(places[:_MOST])}")
        yield Finding(severity, what, where, why, "" if kind == "unknown" else fix, len(items))


def _entry(subject: Subject, item: Refused) -> str:
    """What to remove so that the tool makes it anew: what was refused. For Triton all of its key directory."""
    is_triton = subject.tool is not None and subject.tool.name == "triton"
    return os.path.join(subject.real, item.place.split("/")[0] if is_triton else item.place)


def _judge(subject: Subject, item: Refused) -> tuple[str, str]:
    if subject.tool is None or subject.tool.name != "triton" or item.kind not in ("torn", "incomplete"):
        return _KINDS[item.kind]
    if item.kind == "torn":
        return ERROR, "Triton takes it for a hit, and the job fails when it is loaded (device kernel image is invalid)"
    if "/" not in item.place:
        return NOTE, "a compile that failed or was cut off; Triton makes it again"
    found = releases.find(("triton",), subject.machine.env)
    old = [one.version for one in found if releases.release(one.version) <= releases.TRITON_LAST_TO_CRASH]
    if old:
        return ERROR, f"Triton {old[0]}, which is installed, ends with `KeyError: Unknown key` on it"
    return WARNING, "Triton up to 3.7.1 ends with `KeyError: Unknown key` on it; later ones compile again"


def _spared(subject: Subject, item: Refused) -> bool:
    """A store is no broken entry, nor is a directory with one in it: whoever removed it would lose the store. Nor is an
    entry that may be in the making.
    """
    if subject.tree.holds_store(item.place.split("/")[0]):
        return True
    if item.kind != "incomplete":
        return False
    try:
        changed = os.lstat(_entry(subject, item)).st_mtime
    except OSError:
        return True  # gone while we looked
    return time.time() - changed < _SETTLED


_LOCK, _BUILD_FILE, _TORCH = "lock", "build.ninja", b"TORCH_EXTENSION_NAME"
_MAX_BUILD_FILE = 1 << 20
#: The kernel's own number for the pid namespace in which every process of the machine is seen.
_ALL_PROCESSES = "pid:[4026531836]"
#: No build takes so long; after this nobody is at it, seen or not.
_LONG_AGO = 24 * 3600.0


def orphans(subject: Subject) -> Iterator[Finding]:
    """Torch extension locks whose maker is gone, for which every later build waits for ever."""
    tree = subject.tree
    builds = {entry.name.rpartition("/")[0] for entry in tree.entries if entry.name.endswith("/" + _BUILD_FILE)}
    for entry in tree.entries:
        folder, _, base = entry.name.rpartition("/")
        if base == _LOCK and folder in builds and _is_baton(subject, entry, folder) and _is_left(subject, entry):
            yield _lock(subject, entry)


def _lock(subject: Subject, entry: Seen) -> Finding:
    path = subject.tree.full(entry)
    ours = entry.uid == subject.machine.uid
    what = f"a build lock of torch, {age(time.time() - entry.modified)} old, that no process on this machine holds"
    why = "every job that builds this extension waits for it, for ever and in silence (torch up to 2.13)"
    fix = subject.as_owner(entry.uid, f"rm {commands.quote(path)}")
    gone = ours and _certainly_gone(subject, entry)
    repairs = (Repair("remove", path, entry.device, entry.inode, written_ns=entry.modified_ns),) if gone else ()
    return Finding(ERROR, what, subject.tree.place(entry), why, fix, 1, repairs)


def _is_old(entry: Seen) -> bool:
    return time.time() - entry.modified > _LONG_AGO


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
        return _is_old(entry)  # another user's processes do not show us their files: only age can tell
    return not _is_held(entry)


def _is_held(entry: Seen) -> bool:
    """Whether a process that we may look at has it open."""
    for pid in filter(is_number, os.listdir("/proc")):
        with suppress(OSError):  # not ours to look at, or it ended
            for fd in os.listdir(f"/proc/{pid}/fd"):
                link = f"/proc/{pid}/fd/{fd}"
                # By name first: asking every open file of the machine for its inode would touch dead file systems.
                if os.path.basename(os.readlink(link)) == _LOCK:
                    status = os.stat(link)
                    if (status.st_dev, status.st_ino) == (entry.device, entry.inode):
                        return True
    return False


def _certainly_gone(subject: Subject, entry: Seen) -> bool:
    """Nobody here holds it. Somebody may elsewhere: on another machine, or in a container that we cannot look into."""
    if _is_old(entry):
        return True
    if filesystem.is_network(subject.mount.kind):
        return False
    try:
        return os.readlink("/proc/self/ns/pid") == _ALL_PROCESSES
    except OSError:
        return False
