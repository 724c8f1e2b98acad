"""Whether a directory can be reached, on what kind of file system it is, and what jobs do there, tried out in a corner
of it: executing, locking, renaming, syncing, reserving space.
"""

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ondol import units
from ondol.doctor import commands, mount_rules
from ondol.doctor.api import ERROR, NOTE, WARNING, Finding, Location, look
from ondol.doctor.subject import CACHE, ROOM, STORE, TEMPORARY, Subject
from ondol.errors import OndolError
from ondol.host import bounded, files, filesystem

#: What another process is asked takes no time, unless a file server is away.
_ANSWER = 30.0
_Way = TypeVar("_Way")


def reach(subject: Subject) -> Iterator[Finding]:
    """A directory that is missing, cannot be reached, is a file, or whose file server does not answer."""
    state, path = subject.state, commands.quote(subject.path)
    if state.kind == "hangs":
        # The table of mounts is the kernel's own: reading it touches nothing that could hang us as well.
        mount = filesystem.mount_of(subject.path, filesystem.mounts())
        what = f"{subject.path} does not answer: {state.because}"
        why = f"every job that touches it hangs; the server behind {mount.point} ({mount.kind}) may be dead"
        fix = subject.as_root(f"umount -l {commands.quote(mount.point)}") if mount.point not in ("/", "") else ""
        yield Finding(ERROR, what, Location(subject.path), why, fix)
    elif state.kind == "file":
        why = "tools that want to keep files in it fail with ENOTDIR"
        fix = f"mv {path} {commands.quote(subject.path + '.aside')} && mkdir -p {path}"
        yield Finding(ERROR, f"{subject.path} is not a directory", look(subject.path), why, fix)
    elif state.kind == "missing":
        yield from _missing(subject, path)
    elif state.kind == "unreachable":
        what = f"{subject.path} cannot be reached: {state.because}"
        why = f"uid {subject.machine.uid} gets no further than {state.stuck_at}"
        closed = state.because == os.strerror(errno.EACCES)
        fix = subject.as_root(f"chmod a+x {commands.quote(state.stuck_at)}") if closed else ""
        yield Finding(ERROR, what, look(state.stuck_at), why, fix)


def _missing(subject: Subject, path: str) -> Iterator[Finding]:
    above = os.path.dirname(subject.state.stuck_at)
    me = subject.machine.uid
    creatable = os.access(above, os.W_OK | os.X_OK, effective_ids=True)
    if creatable and not subject.named:
        return  # a cache or a store of the user's own, made on first use
    if creatable:
        why = "it was named: a typing error and a mount that is missing look the same"
        fix = f"ondol store init {path}" if STORE in subject.roles else f"mkdir -p {path}"
    else:
        why = f"uid {me} cannot make it, because it may not write in {above}: the first job to use it fails"
        fix = subject.as_root(f"install -d -o {me} {path}")
    yield Finding(ERROR, f"{subject.path} is not there", look(above), why, fix)


def file_system(subject: Subject) -> Iterator[Finding]:
    """Network file systems and mount options that break caches: NFS, Lustre, GPFS, FUSE, overlay, tmpfs."""
    for verdict in mount_rules.judge(subject.mount, subject.roles):
        fix = ""
        if verdict.remount:
            fix = subject.as_root(f"mount -o remount,{verdict.remount} {commands.quote(subject.mount.point)}")
        elif CACHE in subject.roles and verdict.severity != NOTE and subject.tool:
            # A room on local disk, filled from a store: for the tools whose caches we understand.
            tool = subject.tool.name
            fix = (
                f"ondol store adopt {commands.quote(subject.path)} --tool {tool} && ondol run --tools {tool} -- COMMAND"
            )
        yield Finding(verdict.severity, f"{verdict.what}: {subject.path}", look(subject.path), verdict.why, fix)


@contextmanager
def _corner(path: str) -> Iterator[str]:
    """A new private directory in `path`. Raises `OSError` where none can be made."""
    probe = os.path.join(path, f".ondol-probe-{files.random_name()}")
    os.mkdir(probe, 0o700)
    try:
        yield probe
    finally:
        files.remove_tree(probe)


def _name_of(error: OSError) -> str:
    """`EDQUOT (Disk quota exceeded)`; 524 has no name outside the kernel, and NFS lets it out."""
    number = error.errno or 0
    if number == 524:
        return "524 ENOTSUPP (the file server knows no locks)"
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"


def _another_process(question: Callable[[], Any]) -> Any:
    """What another process answers, the way a second job would see it; None if it has no answer."""
    try:
        return bounded.call(lambda _report: question(), _ANSWER)
    except OndolError:
        return None


def mount(subject: Subject) -> Iterator[Finding]:
    """Read-only mounts, and mounts on which nothing can be executed or loaded (noexec)."""
    remount = f"mount -o remount,{{}} {commands.quote(subject.mount.point)}"
    try:
        with _corner(subject.real) as probe:
            loads = _can_load(probe)
    except OSError as error:
        if error.errno != errno.EROFS:
            return  # not permitted, or full: other checks say so, with what to do
        severity, why = ERROR, "tools that have to compile something new fail there (Triton has no read-only mode)"
        if subject.roles == {STORE}:
            severity, why = NOTE, "jobs can read the store and cannot publish; say --publish never if that is meant"
        fix = subject.as_root(remount.format("rw"))
        yield Finding(severity, f"{subject.path} is on a read-only file system", look(subject.path), why, fix)
        return
    if not loads and not subject.roles.isdisjoint({CACHE, TEMPORARY, ROOM}):
        what = f"nothing can be executed in {subject.path}: the kernel refuses to load a library (noexec?)"
        why = "compiled kernels' helper libraries fail to load (`failed to map segment from shared object`)"
        yield Finding(ERROR, what, look(subject.path), why, subject.as_root(remount.format("exec")))


def _can_load(probe: str) -> bool:
    """A mapping as dlopen makes it. Whether a program can be started there is the same question to the kernel."""
    with files.opened(os.open(_new(probe, "library"), files.READ)) as fd:
        try:
            mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            return False
    return True


Lock = Callable[[int], None]
#: The two kinds that tools use, and who does.
_KINDS: dict[str, tuple[Lock, str]] = {
    "flock": (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), "uv, filelock (Inductor, FlashInfer), ccache"),
    "fcntl": (lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), "SQLite (cuTile, MIOpen), NFS-aware tools"),
}


def _troubles(subject: Subject, ways: Iterable[_Way], attempt: Callable[[str, _Way], str]) -> list[tuple[_Way, str]]:
    """Each way that does not work there, and how. None where nothing can be made at all: other checks say so."""
    try:
        with _corner(subject.real) as probe:
            return [(way, trouble) for way in ways if (trouble := attempt(probe, way))]
    except OSError:
        return []


def locking(subject: Subject) -> Iterator[Finding]:
    """File locks that fail (ENOLCK, ENOSYS, 524 …) or that two processes get at once, tried out with two."""
    # The only thing that a user can do about a file system: not to keep such a cache on it.
    fix = "export UV_CACHE_DIR=/tmp/uv-$(id -u) XDG_CACHE_HOME=/tmp/cache-$(id -u)"
    if subject.tool:
        fix = f"export {subject.tool.variables[0]}=/tmp/{subject.tool.name}-$(id -u)"
    for kind, trouble in _troubles(subject, _KINDS, _try):
        what = f"{kind} locks do not work in {subject.path}: {trouble}"
        why = f"used by {_KINDS[kind][1]}: they fail there, or two of them write at once"
        yield Finding(ERROR if CACHE in subject.roles else WARNING, what, look(subject.path), why, fix)


def _try(probe: str, kind: str) -> str:
    """What is wrong with this kind of lock, or empty."""
    path, (lock, _) = _new(probe, kind), _KINDS[kind]
    with files.opened(os.open(path, os.O_RDWR | os.O_CLOEXEC)) as first:
        try:
            lock(first)
        except OSError as error:
            return f"locking fails with {_name_of(error)}"
        answer = _another_process(lambda: _ask(path, lock, first))
        if answer == 0:
            return "a second process gets the lock while the first one holds it"
        if answer not in (errno.EAGAIN, errno.EACCES):
            return f"a second process fails with {_name_of(OSError(answer, ''))} instead of being told to wait"
    answer = _another_process(lambda: _ask(path, lock))
    return "" if answer == 0 else "the lock stays taken after its holder has let go"


def _ask(path: str, lock: Lock, held: int = -1) -> int:
    """The errno with which it is refused; 0 if it is not."""
    files.close_quietly(held)  # of the first process: in this one too it would keep the lock, until this one has ended
    with files.opened(os.open(path, os.O_RDWR | os.O_CLOEXEC)) as fd:
        try:
            lock(fd)
        except OSError as error:
            return error.errno or -1
    return 0


class Broken(Exception):
    """The operation succeeded and did not do what it promises."""


def operations(subject: Subject) -> Iterator[Finding]:
    """Creating exclusively, renaming, hard-linking and syncing, tried out: what fails, and what lies about it."""
    for step, trouble in _troubles(subject, _STEPS, _attempt):
        operation, why = _STEPS[step]
        needed = step is not _hard_link or STORE in subject.roles
        what = f"{operation} does not work in {subject.path}: {trouble}"
        yield Finding(ERROR if needed else WARNING, what, look(subject.path), why)


def _attempt(probe: str, step: Callable[[str], None]) -> str:
    try:
        step(probe)
    except Broken as broken:
        return str(broken)
    except OSError as error:
        return _name_of(error)
    return ""


def _new(probe: str, name: str, data: bytes = b"probe") -> str:
    path = os.path.join(probe, name)
    files.write_new(path, data, 0o600, sync=False)
    return path


def _exclusive(probe: str) -> None:
    path = _new(probe, "exclusive")
    try:
        files.write_new(path, b"again", 0o600, sync=False)
    except FileExistsError:
        return
    raise Broken("a name that is taken can be created again")


def _replace(probe: str) -> None:
    old, new = _new(probe, "old", b"old"), _new(probe, "new", b"new")
    os.rename(new, old)
    if files.read_regular(old, 64)[0] != b"new" or os.path.lexists(new):
        raise Broken("the old file is still there afterwards")


def _rename_directory(probe: str) -> None:
    for name in ("full", "other"):
        os.mkdir(os.path.join(probe, name))
        _new(os.path.join(probe, name), "file")
    try:
        os.rename(os.path.join(probe, "other"), os.path.join(probe, "full"))
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return
        raise
    raise Broken("a directory that is not empty is replaced")


def _hard_link(probe: str) -> None:
    source = _new(probe, "source")
    target = os.path.join(probe, "target")
    os.link(source, target)
    if os.stat(source).st_nlink != 2:
        raise Broken("the link count stays at one")
    try:
        os.link(_new(probe, "rival"), target)
    except FileExistsError:
        return
    raise Broken("a name that is taken can be linked to")  # seen on Lustre


def _sync(probe: str) -> None:
    files.write_new(os.path.join(probe, "synced"), b"probe", 0o600, sync=True)
    with files.opened(files.open_dir(probe)) as fd:
        files.fsync_dir(fd)


def _seen_at_once(probe: str) -> None:
    """By another process, the way a second job would look."""
    path = _new(probe, "visible", b"x" * 5000)
    if not _another_process(lambda: files.read_regular(path, 1 << 16)[0] == b"x" * 5000):
        raise Broken("another process does not see the file that was just written")


def _remove(probe: str) -> None:
    folder = os.path.join(probe, "folder")
    os.mkdir(folder)
    os.unlink(_new(folder, "file"))
    os.rmdir(folder)


#: What is tried → (what it is called, who suffers)
_STEPS: dict[Callable[[str], None], tuple[str, str]] = {
    _exclusive: ("creating a file exclusively (O_EXCL)", "locks and temporary names of all tools rest on it"),
    _replace: ("renaming a file over another", "every compile cache publishes its files that way"),
    _rename_directory: ("renaming a directory", "TileLang, DeepGEMM and Warp publish whole entries that way"),
    _hard_link: ("making a hard link", "the store publishes that way, and uv installs that way"),
    _sync: ("syncing a file (fsync)", "what was published may be lost or empty after a crash"),
    _seen_at_once: ("reading what was just written", "workers of one job share entries that way"),
    _remove: ("removing a file and its directory", "temporary files stay, and tools that tidy up fail"),
}


#: A cold job with a few hundred kernels, or one C++ extension, writes this much.
ERROR_BYTES, WARNING_BYTES = 100 << 20, 2 << 30
#: Triton makes eight files for a kernel.
ERROR_INODES, WARNING_INODES = 1000, 20_000
#: What is reserved, and given back, to see whether a quota allows it.
_TRIAL_BYTES = 16 << 20
_TRIAL_FILES = 16


def space(subject: Subject) -> Iterator[Finding]:
    """Too little free space or too few free inodes, and quotas that are used up, tried out by reserving some."""
    with files.opened(os.open(subject.real, files.NAMES | os.O_DIRECTORY)) as fd:
        free, inodes = filesystem.free_space(fd)
    path, where = commands.quote(subject.path), look(subject.path)
    fix = f"du -xhd 1 {path} | sort -h | tail"
    if STORE in subject.roles:
        fix = f"ondol store gc --store {path} --min-free {units.size(WARNING_BYTES).replace(' ', '')}"
    why = "a job that compiles fails with ENOSPC, and half-written entries may stay"
    full = severity(free, ERROR_BYTES, WARNING_BYTES)
    if full:
        yield Finding(full, f"{units.size(free)} are free in {subject.path}", where, why, fix)
    few = severity(inodes, ERROR_INODES, WARNING_INODES) if inodes >= 0 else ""
    if few:
        what = f"{units.plural(inodes, 'inode is', 'inodes are')} free in {subject.path}"
        yield Finding(few, what, where, why, fix)
    if ERROR in (full, few):
        return
    try:
        with _corner(subject.real) as probe:
            for number in range(_TRIAL_FILES):
                _new(probe, str(number))
            with files.opened(os.open(os.path.join(probe, "0"), os.O_WRONLY | os.O_CLOEXEC)) as fd:
                os.posix_fallocate(fd, 0, _TRIAL_BYTES)
    except OSError as error:
        if error.errno in (errno.EDQUOT, errno.ENOSPC, errno.EFBIG):  # if it is not permitted, other checks say so
            what = f"{units.size(_TRIAL_BYTES)} cannot be reserved in {subject.path}: {_name_of(error)}"
            why = f"the file system has space, and uid {subject.machine.uid} may not have it: a quota, or a limit"
            yield Finding(ERROR, what, where, why, "quota -s")


def severity(left: int, error_below: int, warning_below: int) -> str:
    if left < error_below:
        return ERROR
    return WARNING if left < warning_below else ""


#: File systems keep times to a second or two, and servers may be slow to answer.
TOLERATED = 10.0


def clock(subject: Subject) -> Iterator[Finding]:
    """A file server whose clock is not this machine's, seen by the time of a new file."""
    try:
        with _corner(subject.real) as probe:
            before = time.time()
            path = _new(probe, "now")
            after = time.time()
            theirs = os.stat(path).st_mtime
    except OSError:
        return  # nothing can be made there: other checks say so
    ahead = skew(before, after, theirs)
    if abs(ahead) > TOLERATED:
        direction = "ahead of" if ahead > 0 else "behind"
        what = f"the clock behind {subject.path} is {units.seconds(abs(ahead))} {direction} this machine's"
        why = "ninja builds again and again, and cleaning by age removes too much or too little"
        fix = "chronyc tracking || timedatectl timesync-status"
        yield Finding(WARNING, what, look(subject.path), why, fix)


def skew(before: float, after: float, theirs: float) -> float:
    """How far a time that was given between two of ours lies outside them; 0 if it does not."""
    if theirs > after:
        return theirs - after
    return min(theirs - before, 0.0)
