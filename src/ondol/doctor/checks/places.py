"""Whether a directory can be reached at all, and what kind of file system it is on."""

import errno
import os
from collections.abc import Iterator

from ondol.doctor import commands, mount_rules
from ondol.doctor.api import ERROR, NOTE, Finding, Location, look
from ondol.doctor.subject import CACHE, STORE, Subject
from ondol.host import filesystem


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
