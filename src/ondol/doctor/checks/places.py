"""Whether a directory can be reached at all, and what kind of file system it is on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from ondol.doctor import commands, mount_rules
from ondol.doctor.api import ERROR, Check, Finding, look, place
from ondol.doctor.subject import CACHE, DIRECTORIES, STORE, Subject
from ondol.host import filesystem


class Reach(Check):
    name = "reach"
    summary = "a directory that is missing, cannot be reached, is a file, or whose file server does not answer"
    roles = DIRECTORIES

    def run(self, subject: Subject) -> Iterator[Finding]:
        state = subject.state
        if state.kind == "hangs":
            yield self._hangs(subject)
        elif state.kind == "file":
            what = f"{subject.path} is not a directory"
            why = "tools that want to keep files in it fail with ENOTDIR"
            path = commands.quote(subject.path)
            fix = f"mv {path} {commands.quote(subject.path + '.aside')} && mkdir -p {path}"
            yield Finding(self.name, ERROR, what, look(subject.path), why, fix)
        elif state.kind == "missing":
            yield from self._missing(subject)
        elif state.kind == "unreachable":
            what = f"{subject.path} cannot be reached: {state.because}"
            why = f"uid {subject.machine.uid} gets no further than {state.stuck_at}"
            fix = ""
            if state.because == os.strerror(errno.EACCES):
                fix = subject.as_root(f"chmod a+x {commands.quote(state.stuck_at)}")
            yield Finding(self.name, ERROR, what, look(state.stuck_at), why, fix)

    def _hangs(self, subject: Subject) -> Finding:
        # The table of mounts is the kernel's own: reading it touches nothing that could hang us as well.
        mount = filesystem.mount_of(subject.path, filesystem.mounts())
        what = f"{subject.path} does not answer: {subject.state.because}"
        why = f"every job that touches it hangs; the server behind {mount.point} ({mount.kind}) may be dead"
        fix = subject.as_root(f"umount -l {commands.quote(mount.point)}")
        return Finding(self.name, ERROR, what, place(subject.path), why, fix if mount.point not in ("/", "") else "")

    def _missing(self, subject: Subject) -> Iterator[Finding]:
        above = os.path.dirname(subject.state.stuck_at)
        me, path = subject.machine.uid, commands.quote(subject.path)
        creatable = os.access(above, os.W_OK | os.X_OK, effective_ids=True)
        if creatable and not subject.named:
            return  # a cache or a store of the user's own, made on first use
        if creatable:
            why = "it was named: a typing error and a mount that is missing look the same"
            fix = f"ondol store init {path}" if STORE in subject.roles else f"mkdir -p {path}"
        else:
            why = f"uid {me} cannot make it, because it may not write in {above}: the first job to use it fails"
            fix = subject.as_root(f"install -d -o {me} {path}")
        yield Finding(self.name, ERROR, f"{subject.path} is not there", look(above), why, fix)


class FileSystem(Check):
    name = "file-system"
    summary = "network file systems and mount options that break caches: NFS, Lustre, GPFS, FUSE, overlay, tmpfs"
    roles = DIRECTORIES

    def run(self, subject: Subject) -> Iterator[Finding]:
        point = commands.quote(subject.mount.point)
        for verdict in mount_rules.judge(subject.mount, subject.roles):
            fix = ""
            if verdict.remount:
                fix = subject.as_root(f"mount -o remount,{verdict.remount} {point}")
            elif CACHE in subject.roles and verdict.severity != "note":
                fix = _elsewhere(subject)
            what = f"{verdict.what}: {subject.path}"
            yield Finding(self.name, verdict.severity, what, look(subject.path), verdict.why, fix)


def _elsewhere(subject: Subject) -> str:
    """A room on local disk, filled from a store: for the tools whose caches we understand."""
    if subject.tool is None:
        return ""
    path = commands.quote(subject.path)
    return f"ondol store adopt {path} --tool {subject.tool.name} && ondol run --tools {subject.tool.name} -- COMMAND"
