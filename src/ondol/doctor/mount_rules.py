"""What the type and the options of a mount mean for each role that a directory can play. Pure.

Read from nfs(5), mount.lustre(8) and the tools' own bug trackers; what can be tried out is left to the checks that try.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ondol.doctor.api import NOTE, WARNING
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY
from ondol.foreign_text import is_number
from ondol.host.filesystem import Mount, is_network

_NFS = ("nfs", "nfs4")
#: Seconds that a client may believe its own memory of a directory, unless the mount says otherwise: nfs(5).
_LONGEST_MEMORY = 60
#: Options that keep NFS locks on this machine.
_LOCAL_LOCKS = ("nolock", "local_lock=all", "local_lock=flock", "local_lock=posix")
_WORKING = (CACHE, TEMPORARY, ROOM)


class MountVerdict(NamedTuple):
    severity: str
    what: str
    why: str
    #: Options to mount with instead, or empty.
    remount: str = ""


def judge(mount: Mount, roles: Collection[str]) -> Iterator[MountVerdict]:
    working = [role for role in _WORKING if role in roles]
    if working and is_network(mount.kind):
        yield _on_a_network(mount, working[0])
    if mount.kind in _NFS:
        yield from _nfs(mount, roles)
    elif mount.kind == "lustre":
        yield from _lustre(mount, roles)
    elif mount.kind == "gpfs" and CACHE in roles:
        why = "compile caches make up to eight files per kernel, and inode quotas are small; in a store it is one"
        yield MountVerdict(NOTE, "a cache of many small files on GPFS", why)
    elif mount.kind == "tmpfs" and (CACHE in roles or STORE in roles):
        why = "what is kept there takes memory, and is gone after a reboot or with its container"
        yield MountVerdict(NOTE, "kept in memory (tmpfs)", why)
    elif mount.kind in ("overlay", "fuse.fuse-overlayfs") and (CACHE in roles or STORE in roles):
        why = "in a container without a volume there, it is gone with the container: every job starts cold"
        yield MountVerdict(NOTE, "on a container's own layer (overlay)", why)


def _on_a_network(mount: Mount, role: str) -> MountVerdict:
    if role == CACHE:
        why = "JIT caches are not made for it: entries just written are not seen by other machines for up to a minute, "
        why += "replacing a loaded library fails with EBUSY or ESTALE, two machines mix their files"
        return MountVerdict(
            WARNING, f"a cache that tools write into directly is on a network file system ({mount.kind})", why
        )
    why = "slow for thousands of small files, locks and executables are at the server's mercy"
    return MountVerdict(WARNING, f"temporary files go to a network file system ({mount.kind})", why)


def _nfs(mount: Mount, roles: Collection[str]) -> Iterator[MountVerdict]:
    local = [option for option in _LOCAL_LOCKS if option in mount.options]
    if local and not {CACHE, HOME, TEMPORARY}.isdisjoint(roles):
        why = "a lock that one machine holds does not stop another: tools that rely on it write at once"
        yield MountVerdict(
            WARNING, f"locks are not shared between machines (mounted with {local[0]})", why, "local_lock=none"
        )
    if "soft" in mount.options or "softerr" in mount.options:
        why = "a server that pauses gives EIO to jobs that run, and files may stay half-written without an error"
        yield MountVerdict(WARNING, "mounted soft", why, "hard")
    memory = _longest_memory(mount.options)
    if memory > _LONGEST_MEMORY:
        why = f"what another machine makes or removes there is not seen for up to {memory} s"
        yield MountVerdict(WARNING, f"attributes are believed for up to {memory} s", why, "actimeo=30")
    elif "noac" in mount.options or memory == 0:
        yield MountVerdict(NOTE, "attributes are never cached (noac)", "every look at a file asks the server: slow")


def _longest_memory(options: Collection[str]) -> int:
    seconds = [_LONGEST_MEMORY]
    for option in options:
        name, _, value = option.partition("=")
        if name in ("actimeo", "acregmax", "acdirmax") and is_number(value):
            if name == "actimeo":
                return int(value)
            seconds.append(int(value))
    return max(seconds)


def _lustre(mount: Mount, roles: Collection[str]) -> Iterator[MountVerdict]:
    if {CACHE, HOME, TEMPORARY}.isdisjoint(roles):
        return
    if "localflock" in mount.options:
        why = "a lock that one machine holds does not stop another: tools that rely on it write at once"
        yield MountVerdict(WARNING, "locks are not shared between machines (mounted with localflock)", why, "flock")
    elif "flock" not in mount.options:
        why = "tools that lock fail with ENOSYS (os error 38)"
        yield MountVerdict(WARNING, "mounted without flock", why, "flock")
