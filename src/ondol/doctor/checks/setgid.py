"""In a cache that a group shares: directories that do not hand the group on, and entries of another group."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from ondol.doctor import commands, rights
from ondol.doctor.api import WARNING, Check, Finding, Repair
from ondol.doctor.subject import CACHE, Subject
from ondol.doctor.walk import Seen
from ondol.words import directories, plural


class Setgid(Check):
    name = "setgid"
    summary = "in a cache that a group shares: directories without setgid, and entries that belong to another group"
    roles = frozenset({CACHE})
    walks = True
    fixes = "sets setgid on own directories of the sharing group"

    def run(self, subject: Subject) -> Iterator[Finding]:
        tree = subject.tree
        if tree.sharing != rights.GROUP:
            return
        gid = tree.top.gid
        bare = [entry for entry in tree.entries if entry.is_dir and entry.gid == gid and not entry.mode & stat.S_ISGID]
        yield from self._bare(subject, [entry for entry in bare if entry.uid == subject.machine.uid], ours=True)
        yield from self._bare(subject, [entry for entry in bare if entry.uid != subject.machine.uid], ours=False)
        strays = [entry for entry in tree.entries if entry.gid != gid and (entry.is_dir or entry.is_file)]
        if strays:
            what = f"{plural(len(strays), 'file or directory belongs', 'files and directories belong')} "
            what += f"to another group than {gid}, which shares the cache"
            why = f"members of group {gid} have only the rights of strangers there"
            fix = commands.throughout(tree.path, f"chgrp {gid}", plain=tree.is_plain)
            fix = commands.as_root(subject.machine.uid, fix)
            yield Finding(self.name, WARNING, what, tree.place(strays[0]), why, fix, len(strays))

    def _bare(self, subject: Subject, entries: list[Seen], *, ours: bool) -> Iterator[Finding]:
        if not entries:
            return
        tree = subject.tree
        what = f"{directories(len(entries))} without setgid in a cache that group {tree.top.gid} shares"
        why = "what a job makes there belongs to the job's own group, and the other members cannot write it"
        command = commands.find(tree.path, f"-type d -gid {tree.top.gid}", "chmod g+s", plain=tree.is_plain)
        repairs = tuple(
            Repair("chmod", tree.full(entry), entry.device, entry.inode, add=stat.S_ISGID) for entry in entries if ours
        )
        fix = command if ours else commands.as_root(subject.machine.uid, command)
        yield Finding(self.name, WARNING, what, tree.place(entries[0]), why, fix, len(entries), repairs)
