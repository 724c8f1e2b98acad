"""What kind of file system a directory is on, how it is mounted, and what that means for what it is used for."""

from __future__ import annotations

from collections.abc import Iterator

from ondol.doctor import commands, mount_rules
from ondol.doctor.api import Check, Finding, look
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY, Subject


class FileSystem(Check):
    name = "file-system"
    summary = "network file systems and mount options that break caches: NFS, Lustre, GPFS, FUSE, overlay, tmpfs"
    roles = frozenset({CACHE, STORE, TEMPORARY, ROOM, HOME})

    def run(self, subject: Subject) -> Iterator[Finding]:
        point = commands.quote(subject.mount.point)
        for verdict in mount_rules.judge(subject.mount, subject.roles):
            fix = ""
            if verdict.remount:
                fix = commands.as_root(subject.machine.uid, f"mount -o remount,{verdict.remount} {point}")
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
