"""Places where any user of the machine could put code in front of this user's jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ondol.doctor import commands, rights
from ondol.doctor.api import WARNING, Check, Finding, place
from ondol.doctor.subject import CACHE, Subject
from ondol.words import plural


class WorldWritable(Check):
    name = "world-writable"
    summary = "a cache, or a directory on the way to it, in which every user of the machine can replace what jobs load"
    roles = frozenset({CACHE})
    walks = True

    def run(self, subject: Subject) -> Iterator[Finding]:
        tree = subject.tree
        open_to_all = [
            entry for entry in tree.entries if entry.is_dir and rights.sharing(entry.mode) == rights.EVERYBODY
        ]
        if open_to_all:
            what = f"{plural(len(open_to_all), 'directory', 'directories')} in which every user can replace files"
            why = "what lies in a compile cache is code, and jobs run it; share it with a group, or use `ondol run`"
            selection = "-type d -perm -o+w ! -perm -1000"
            fix = commands.find(tree.path, selection, "chmod o-w", plain=tree.is_plain)
            if any(entry.uid != subject.machine.uid for entry in tree.entries):
                # Simply closed, it would be closed to this user too.
                gid = subject.machine.gid if subject.machine.uid else tree.top.gid
                fix = commands.share_with_group(subject.machine.uid, tree.path, gid, plain=tree.is_plain)
            yield Finding(self.name, WARNING, what, tree.place(open_to_all[0]), why, fix, len(open_to_all))
        yield from self._above(subject)

    def _above(self, subject: Subject) -> Iterator[Finding]:
        here = os.path.dirname(subject.real)
        while True:
            status = os.stat(here)
            if rights.sharing(status.st_mode) == rights.EVERYBODY:
                what = f"every user can rename or replace {subject.path}, because {here} has no sticky bit"
                why = "another directory can take its place at any time, with other code in it"
                fix = f"chmod +t {commands.quote(here)}"
                fix = fix if status.st_uid == subject.machine.uid else commands.as_root(subject.machine.uid, fix)
                yield Finding(self.name, WARNING, what, place(here, status), why, fix)
            if here == "/":
                return
            here = os.path.dirname(here)
