"""A cache that several users write: whose files keep whom out, and who could put code in front of whose jobs.

The fault behind `PermissionError … tmp.pid_…`: a shared cache whose top everybody can write, and in it key directories
that a job of another UID made, mode 0755. Testing the top says that all is well.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from ondol.doctor import acl, commands, rights
from ondol.doctor.api import ERROR, NOTE, WARNING, Check, Finding, place
from ondol.doctor.subject import CACHE, Subject
from ondol.doctor.walk import Seen, acl_of, is_lock
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
            fix = subject.as_root(commands.find(tree.path, "-type d", "chmod -t", plain=tree.is_plain))
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
        return subject.as_root(commands.throughout(tree.path, f"chown {people.pop()}", plain=plain))
    if tree.sharing in rights.OPEN:
        # Not chmod: what lies in a compile cache is code, and whoever can write it runs it in everybody's jobs.
        return "ondol run -- COMMAND"
    return commands.share_with_group(me, tree.path, subject.machine.gid, plain=plain)


#: From a mode to the bits that are missing in it.
Missing = Callable[[Seen], int]


class Modes(Check):
    name = "modes"
    summary = "own files and directories that the owner, or the group that shares the cache, cannot use"
    roles = frozenset({CACHE})
    walks = True
    fixes = "adds the missing bits for the owner, and for the group in a directory that a group shares"

    def run(self, subject: Subject) -> Iterator[Finding]:
        ours = [entry for entry in subject.tree.entries if entry.uid == subject.machine.uid]
        folders = [entry for entry in ours if entry.is_dir]
        plain = [entry for entry in ours if entry.is_file]
        why = "the owner itself is locked out: the tool fails there"
        yield from _lacking(subject, folders, _for_owner, ERROR, "cannot be used by their own owner", why)
        yield from _lacking(subject, plain, _for_owner, ERROR, "cannot be read by their own owner", why)
        if subject.tree.sharing == rights.GROUP:
            yield from self._for_group(subject, folders, plain)
        elif subject.tree.sharing in rights.OPEN and len(ours) < len(subject.tree.entries):
            yield from self._for_everybody(subject, [entry for entry in plain if not entry.mode & stat.S_IROTH])

    def _for_group(self, subject: Subject, folders: list[Seen], plain: list[Seen]) -> Iterator[Finding]:
        gid = subject.tree.top.gid
        folders = [entry for entry in folders if entry.gid == gid]
        plain = [entry for entry in plain if entry.gid == gid]
        who = f"the group {gid} that shares the cache"
        why = f"jobs of other members of group {gid} fail with PermissionError there"
        yield from _lacking(subject, folders, _for_group, WARNING, f"closed to {who}", why)
        yield from _lacking(subject, plain, _for_group, WARNING, f"closed to {who}", why)
        why = "harmless where a tool replaces files; one that writes into them (ninja, in-place caches) fails"
        rest = [entry for entry in plain if not _for_group(entry)]
        yield from _lacking(subject, rest, _to_write, NOTE, f"not writable for {who}", why)

    def _for_everybody(self, subject: Subject, closed: list[Seen]) -> Iterator[Finding]:
        """Only said: to open files to every user of the machine is not for us to decide."""
        if not closed:
            return
        what = f"{plural(len(closed), 'file', 'files')} closed to the other users of the cache"
        why = "a tool of theirs that finds such an entry takes it for a hit and fails with PermissionError"
        selection = f"-type f -uid {subject.machine.uid}"
        fix = commands.find(subject.tree.path, selection, "chmod a+r", plain=subject.tree.is_plain)
        yield Finding(self.name, WARNING, what, subject.tree.place(closed[0]), why, fix, len(closed))


def _for_owner(entry: Seen) -> int:
    # The kernel is asked too: for root, and with an ACL, the bits alone do not decide.
    return 0 if entry.usable and entry.readable else rights.missing_for_owner(entry.mode, written=is_lock(entry.name))


def _for_group(entry: Seen) -> int:
    closed = rights.missing_for_group(entry.mode, written=is_lock(entry.name))
    # What has to be opened anyway is opened all the way, as a job under umask 002 would have made it.
    return _to_write(entry) if closed else 0


def _to_write(entry: Seen) -> int:
    return rights.missing_for_group(entry.mode, written=True)


def _lacking(
    subject: Subject, entries: list[Seen], missing: Missing, severity: str, what: str, why: str
) -> Iterator[Finding]:
    """One finding for all of a kind; what each lacks is exact in its repair."""
    lacking = [(entry, bits) for entry in entries if (bits := missing(entry))]
    if not lacking:
        return
    names = ("directory", "directories") if lacking[0][0].is_dir else ("file", "files")
    everything = 0
    for _, bits in lacking:
        everything |= bits
    repairs = tuple(subject.tree.chmod(entry, add=bits) for entry, bits in lacking)
    kind = "d" if lacking[0][0].is_dir else "f"
    selection = f"-type {kind} -uid {subject.machine.uid}"
    # One by one for the owner: a directory has to be opened before find can go into it.
    end = "\\;" if everything & stat.S_IRWXU else "+"
    if everything & stat.S_IRWXG:
        selection += f" -gid {subject.tree.top.gid}"
    chmod = f"chmod {commands.bits(everything)}"
    if subject.machine.uid == 0 and kind == "f" and everything & stat.S_IRWXG:
        # Who can write here may have moved a private file of root's here, to have it opened: it must be looked at.
        chmod, end = "ls -l", "+"
    fix = commands.find(subject.tree.path, selection, chmod, plain=subject.tree.is_plain, end=end)
    text = f"{plural(len(lacking), *names)} {what}"
    yield Finding(Modes.name, severity, text, subject.tree.place(lacking[0][0]), why, fix, len(lacking), repairs)


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
            fix = subject.as_root(commands.throughout(tree.path, f"chgrp {gid}", plain=tree.is_plain))
            yield Finding(self.name, WARNING, what, tree.place(strays[0]), why, fix, len(strays))

    def _bare(self, subject: Subject, entries: list[Seen], *, ours: bool) -> Iterator[Finding]:
        if not entries:
            return
        tree = subject.tree
        what = f"{directories(len(entries))} without setgid in a cache that group {tree.top.gid} shares"
        why = "what a job makes there belongs to the job's own group, and the other members cannot write it"
        command = commands.find(tree.path, f"-type d -gid {tree.top.gid}", "chmod g+s", plain=tree.is_plain)
        repairs = tuple(tree.chmod(entry, add=stat.S_ISGID) for entry in entries if ours)
        fix = command if ours else subject.as_root(command)
        yield Finding(self.name, WARNING, what, tree.place(entries[0]), why, fix, len(entries), repairs)


class Acls(Check):
    name = "acls"
    summary = "access control lists that a mask has taken back, and directories without the default list of their top"
    roles = frozenset({CACHE})
    walks = True

    def run(self, subject: Subject) -> Iterator[Finding]:
        yield from self._masked(subject)
        yield from self._not_handed_on(subject)

    def _masked(self, subject: Subject) -> Iterator[Finding]:
        """A program that makes a directory with mode 0755, or a file with 0600, takes the list's rights back."""
        tree = subject.tree
        masked: list[tuple[Seen, acl.Named]] = []
        for entry in tree.entries:
            if entry.is_dir or entry.is_file:
                lost = [named for named in acl.parse(acl_of(tree.full(entry), acl.ACCESS)) if _lost(entry, named)]
                masked += [(entry, named) for named in lost[:1]]
        if not masked:
            return
        entry, named = masked[0]
        who = f"{named.kind} {named.number}"
        what = f"{plural(len(masked), 'access control list')} whose mask takes rights back: {who} is granted "
        what += f"{acl.letters(named.granted)} and has {acl.letters(named.effective)}"
        why = f"jobs of {who} fail with PermissionError although `getfacl` lists them"
        fix = subject.as_root(commands.throughout(tree.path, "setfacl -m m::rwX", plain=tree.is_plain))
        yield Finding(self.name, WARNING, what, tree.place(entry), why, fix, len(masked))

    def _not_handed_on(self, subject: Subject) -> Iterator[Finding]:
        tree = subject.tree
        wanted = acl.parse(acl_of(tree.path, acl.DEFAULT))
        if not wanted:
            return
        without = [
            entry for entry in tree.entries if entry.is_dir and not acl.parse(acl_of(tree.full(entry), acl.DEFAULT))
        ]
        if without:
            what = f"{directories(len(without))} without the default access control list of the top"
            why = "what a job makes there is open to nobody whom the list names"
            path = commands.quote(tree.path)
            command = f'setfacl -d -m "$(getfacl -cdEp {path} | grep . | paste -sd,)"'
            fix = subject.as_root(commands.find(tree.path, "-type d", command, plain=tree.is_plain))
            yield Finding(self.name, WARNING, what, tree.place(without[0]), why, fix, len(without))


def _lost(entry: Seen, named: acl.Named) -> bool:
    """Whether the mask takes back what matters: writing into a directory, reading a file."""
    matters = 0b011 if entry.is_dir else 0b100
    return bool((named.granted & ~named.effective) & matters)


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
                fix = subject.as_owner(status.st_uid, f"chmod +t {commands.quote(here)}")
                yield Finding(self.name, WARNING, what, place(here, status), why, fix)
            if here == "/":
                return
            here = os.path.dirname(here)
