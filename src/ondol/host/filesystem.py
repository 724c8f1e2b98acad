"""What a file system is and can do, found out by trying rather than by name wherever trying is possible; and whether a
directory is one user's own, or a place where others can put files in his way.
"""

import mmap
import os
import re
import stat
from typing import NamedTuple

from ondol.host import files, identity

#: Types whose latency, locking or visibility makes them wrong for a private working directory. FUSE is judged apart.
_NETWORK = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "beegfs", "beegfs_nodev"),
        *("panfs", "afs", "pvfs2", "orangefs", "wekafs", "9p", "autofs"),
    )
)
#: What containers without root stand on: a local disk behind a FUSE server of the same machine.
_LOCAL_FUSE = frozenset(("fuse.fuse-overlayfs", "fuse.lxcfs"))
_MAX_LINKS = 40


def real(path: str) -> str:
    """`os.path.realpath`, which raises where a link that it has seen is a directory when it reads it."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.abspath(path)


def is_network(kind: str) -> bool:
    if kind == "fuse" or kind.startswith("fuse."):
        return kind not in _LOCAL_FUSE
    return kind in _NETWORK


def fs_type(path: str) -> str:
    """The file-system type as the kernel names it, or `unknown` (no /proc, relative path).

    Found without touching anything on a network file system: a dead server would hold us for ever. Links are followed
    by hand, one component at a time, and only on file systems that answer.
    """
    table = mounts()
    here, pending, links = "/", [part for part in path.split("/") if part], 0
    while pending and not is_network(mount_of(here, table).kind):
        part = pending.pop(0)
        if part in (".", ".."):
            here = os.path.dirname(here) if part == ".." else here
            continue
        here = os.path.join(here, part)
        if is_network(mount_of(here, table).kind):
            break
        try:
            target = os.readlink(here)
        except OSError:
            continue  # not a link
        links += 1
        if links > _MAX_LINKS:
            return "unknown"
        here = "/" if target.startswith("/") else os.path.dirname(here)
        pending = [word for word in target.split("/") if word] + pending
    return mount_of(here, table).kind


#: In the reason of a directory in which somebody else can take a room away.
REPLACE = "can replace what is in it"


class Usable(NamedTuple):
    """The result of trying a directory: whether a room can stand in it, and if not, why not."""

    why_not: str = ""
    keeps_atime: bool = False


def try_directory(path: str) -> Usable:
    """Create a file in `path`, map it executable as a loader would, look whether reading it moves its access time."""
    if stranger := _who_else_can_replace(path):
        return Usable(stranger)
    probe = os.path.join(path, f".ondol-probe-{files.random_name()}")
    try:
        fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
    except OSError as error:
        return Usable(f"cannot create a file there: {error.strerror}")
    try:
        return _try_file(fd)
    finally:
        files.close_quietly(fd)
        files.unlink_quietly(probe)


def _who_else_can_replace(path: str) -> str:
    """Who could rename a directory of ours in there, and put another of that name in its place; empty for nobody."""
    try:
        status = os.stat(path)
    except OSError as error:
        return f"cannot look at it: {error.strerror}"
    me, sticky = os.geteuid(), status.st_mode & stat.S_ISVTX
    # In a container with mapped users the host's root looks like nobody.
    if status.st_uid not in (0, me) and not (sticky and status.st_uid == identity.overflow_uid()):
        return f"it belongs to uid {status.st_uid}, who {REPLACE}"
    if not sticky and status.st_mode & open_to_others(status):
        mode = f"mode {stat.S_IMODE(status.st_mode):04o} without the sticky bit"
        return f"others {REPLACE} ({mode}; its owner can: chmod +t)"
    return _who_can_move_it(os.path.realpath(path))


def open_to_others(status: os.stat_result) -> int:
    """The bits of its mode that let others write: not the group's where the group is the caller's own."""
    private_group = status.st_gid == os.getegid() == os.geteuid()  # as most systems give each user
    return stat.S_IWOTH if private_group else stat.S_IWOTH | stat.S_IWGRP


def _who_can_move_it(path: str) -> str:
    """A directory above in which everybody can rename what is not theirs: then this one is no better."""
    while path != "/":
        path = os.path.dirname(path)
        mode = os.stat(path).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            open_to_all = f"mode {stat.S_IMODE(mode):04o} without the sticky bit"
            return f"others can move {path} and what is below it ({open_to_all}; its owner can: chmod +t)"
    return ""


def _try_file(fd: int) -> Usable:
    try:
        os.write(fd, b"\x00" * 64)
    except OSError as error:
        return Usable(f"cannot write there: {error.strerror}")
    try:
        # What dlopen does with a compiled kernel's helper, and what the kernel refuses on a noexec mount.
        mmap.mmap(fd, 64, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError as error:
        return Usable(f"cannot execute there (noexec mount?): {error.strerror}")
    return Usable(keeps_atime=_reading_moves_atime(fd))


def _reading_moves_atime(fd: int) -> bool:
    try:
        os.utime(fd, ns=(0, os.fstat(fd).st_mtime_ns))
        os.pread(fd, 1, 0)
        return os.fstat(fd).st_atime_ns != 0
    except OSError:
        return False


def free_space(fd: int) -> tuple[int, int]:
    """(bytes, inodes) that an ordinary user can still take; inodes are -1 where the file system has no such limit."""
    status = os.statvfs(fd)
    inodes = status.f_favail if status.f_files else -1
    return status.f_bavail * status.f_frsize, inodes


class Mount(NamedTuple):
    point: str
    #: The type of file system, as the kernel names it.
    kind: str
    #: Of the mount and of the file system behind it.
    options: frozenset[str]


NOWHERE = Mount("", "unknown", frozenset())


def mounts() -> dict[str, Mount]:
    """By mount point, in this process's namespace; empty where there is no /proc.

    Of several mounts on one point the last is kept, which hides the others.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return {mount.point: mount for mount in map(parse_mount, lines)}
    except OSError:
        return {}


def parse_mount(line: str) -> Mount:
    """One line of /proc/self/mountinfo, proc(5)."""
    before, _, after = line.rstrip("\n").partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    # A space, a tab, a newline and a backslash are written as octal numbers.
    point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
    return Mount(point, rest[0], frozenset([*fields[5].split(","), *rest[-1].split(",")]))


def mount_of(path: str, table: dict[str, Mount]) -> Mount:
    """Where a path without symbolic links lies."""
    while path not in table:
        if path in ("/", ""):
            return NOWHERE
        path = path.rpartition("/")[0] or "/"
    return table[path]


#: Of a directory with many entries this many are looked at, which takes milliseconds: a few of another user are enough.
_LOOKED_AT = 4096


def why_common(path: str) -> str:
    """Why a job that writes there meets other users or other machines; empty if the directory is the caller's own."""
    kind = fs_type(path)
    if is_network(kind):
        return f"it is on a network file system ({kind}), where other machines write too"  # and a look could hang
    try:
        return _why(path)
    except OSError as error:
        return f"this job cannot use it: {error.strerror}"


def _why(path: str) -> str:
    missing = False
    while not os.path.lexists(path):
        path, missing = os.path.dirname(path), True
    status = os.stat(path)
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        return f"uid {os.geteuid()} cannot write {path}"
    if missing:
        return ""  # what this job makes itself is its own
    if status.st_uid != os.geteuid():
        return f"it belongs to uid {status.st_uid}"
    if stat.S_IMODE(status.st_mode) & open_to_others(status):
        return f"other users can write it (mode {stat.S_IMODE(status.st_mode):04o})"
    with os.scandir(path) as entries:
        for _, entry in zip(range(_LOOKED_AT), entries, strict=False):
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner != status.st_uid:
                return f"uid {owner} has written there too ({entry.name})"
    return ""
