"""Files and directories of other users that this user's jobs trip over.

The fault behind `PermissionError … tmp.pid_…`: a shared cache whose top everybody can write, and in it key directories
that a job of another UID made, mode 0755. Testing the top says that all is well.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator

from ondol.doctor import commands, rights
from ondol.doctor.api import ERROR, WARNING, Check, Finding
from ondol.doctor.subject import CACHE, Subject
from ondol.doctor.walk import Seen
from ondol.words import directories, plural

#: What is wrong → (what it is called, what this user cannot do, what happens then)
_TROUBLES = {
    "create": (
        ("directory", "directories"),
        "cannot create files in",
        "a job that makes or renews an entry there fails with PermissionError, although the top may be writable",
    ),
    "list": (("directory", "directories"), "cannot look into", "tools that search there fail, or miss what is there"),
    "read": (("file", "files"), "cannot read", "a tool that finds such an entry takes it for a hit and fails"),
    "lock": (("lock file", "lock files"), "cannot open for writing", "a tool that wants the lock fails at once"),
}


class Owners(Check):
    name = "owners"
    summary = "files and directories of another user that this user's jobs cannot use, at every level"
    roles = frozenset({CACHE})
    walks = True

    def run(self, subject: Subject) -> Iterator[Finding]:
        tree, me = subject.tree, subject.machine.uid
        blocked: dict[tuple[str, int], list[Seen]] = {}
        for entry in tree.entries:
            trouble = _trouble(entry)
            if trouble and entry.uid != me:
                blocked.setdefault((trouble, entry.uid), []).append(entry)
        for (trouble, owner), entries in blocked.items():
            names, cannot, why = _TROUBLES[trouble]
            what = f"{plural(len(entries), *names)} of uid {owner} that uid {me} {cannot}"
            where = tree.place(entries[0])
            yield Finding(self.name, ERROR, what, where, why, _remedy(subject), len(entries))
        if not blocked:
            yield from self._others_blocked(subject)
        yield from self._stuck(subject)

    def _others_blocked(self, subject: Subject) -> Iterator[Finding]:
        """We get on well (we may be root); the other users that left files here may not."""
        tree = subject.tree
        shared = tree.top.gid if tree.sharing == rights.GROUP else None
        users = {entry.uid for entry in tree.entries}
        closed: dict[int, list[Seen]] = {}
        for entry in tree.entries:
            if entry.is_dir and entry.name and not rights.others_can_create(entry.mode, entry.gid, shared):
                closed.setdefault(entry.uid, []).append(entry)
        for owner, entries in closed.items():
            if shared is not None and owner == subject.machine.uid:
                continue  # our own, in a directory that a group shares, are the business of the modes
            others = sorted(users - {owner, 0})
            if others:
                use = f"that uid {', '.join(map(str, others[:5]))} uses too"
            elif owner == 0 and tree.sharing in rights.OPEN:
                use = "whose top is open to all users"
            else:
                continue  # nobody else is there
            what = f"{directories(len(entries))} that only uid {owner} can write, in a cache {use}"
            why = "jobs of the others fail with PermissionError when they make or renew an entry there"
            yield Finding(self.name, WARNING, what, tree.place(entries[0]), why, _remedy(subject), len(entries))

    def _stuck(self, subject: Subject) -> Iterator[Finding]:
        """In a sticky directory only the owner of a file can replace it, whatever the modes say."""
        tree, me = subject.tree, subject.machine.uid
        folders = [entry for entry in tree.entries if entry.is_dir and entry.uid != me]
        sticky = {entry.name for entry in folders if entry.mode & stat.S_ISVTX}
        stuck = [
            entry
            for entry in tree.entries
            if me not in (0, entry.uid) and entry.is_file and entry.name.rpartition("/")[0] in sticky
        ]
        if stuck:
            what = f"{plural(len(stuck), 'file')} of others in sticky directories, which uid {me} cannot replace"
            why = "a job that renews such an entry fails with PermissionError when it renames its file over it"
            fix = commands.as_root(me, commands.find(tree.path, "-type d", "chmod -t", plain=tree.is_plain))
            yield Finding(self.name, WARNING, what, tree.place(stuck[0]), why, fix, len(stuck))


def _trouble(entry: Seen) -> str:
    if entry.is_dir:
        return "create" if not entry.usable else "" if entry.readable else "list"
    if not entry.readable:
        return "read"
    return "" if entry.usable else "lock"


def _remedy(subject: Subject) -> str:
    """One command that leaves everybody who shares the directory, as its top says, able to use all of it."""
    tree, me, plain = subject.tree, subject.machine.uid, subject.tree.is_plain
    people = ({entry.uid for entry in tree.entries} | {me}) - {0}
    if tree.sharing == rights.GROUP:
        if me == 0 or tree.top.gid in subject.machine.groups:
            return commands.share_with_group(me, tree.path, tree.top.gid, plain=plain)
        return f'sudo usermod -aG "$(getent group {tree.top.gid} | cut -d: -f1)" "$(id -un)"'
    if len(people) == 1:
        # One user beside root: what root has there is left over from a job that ran as root.
        return commands.as_root(me, commands.throughout(tree.path, f"chown {people.pop()}", plain=plain))
    if tree.sharing in rights.OPEN:
        # Not chmod: what lies in a compile cache is code, and whoever can write it runs it in everybody's jobs.
        return "ondol run -- COMMAND"
    return commands.share_with_group(me, tree.path, subject.machine.gid, plain=plain)
