"""A cache that several users write: whose files keep whom out, and who could put code in front of whose jobs.

The fault behind `PermissionError … tmp.pid_…`: a shared cache whose top everybody can write, and in it key directories
that a job of another UID made, mode 0755. Testing the top says that all is well.
"""

import os
import stat
from collections.abc import Callable, Iterator

from ondol.doctor import commands, rights
from ondol.doctor.api import ERROR, NOTE, WARNING, Finding, place
from ondol.doctor.subject import Subject
from ondol.doctor.walk import Seen, acl_of, is_lock
from ondol.units import directories, plural

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


def owners(subject: Subject) -> Iterator[Finding]:
    """Files and directories of another user that this user's jobs cannot use, at every level."""
    tree, me = subject.tree, subject.machine.uid
    blocked: dict[tuple[str, int], list[Seen]] = {}
    for entry in tree.entries:
        trouble = _trouble(entry)
        if trouble and entry.uid != me:
            blocked.setdefault((trouble, entry.uid), []).append(entry)
    for (trouble, owner), entries in blocked.items():
        names, cannot, why = _TROUBLES[trouble]
        what = f"{plural(len(entries), *names)} of uid {owner} that uid {me} {cannot}"
        yield from tree.finding(ERROR, what, entries, why, _remedy(subject))
    if not blocked:
        yield from _others_blocked(subject)
    # In a sticky directory only the owner of a file can replace it, whatever the modes say.
    sticky = {entry.name for entry in tree.entries if entry.is_dir and entry.uid != me and entry.mode & stat.S_ISVTX}
    files = [entry for entry in tree.entries if entry.is_file and me not in (0, entry.uid)]
    stuck = [entry for entry in files if entry.name.rpartition("/")[0] in sticky]
    what = f"{plural(len(stuck), 'file')} of others in sticky directories, which uid {me} cannot replace"
    why = "a job that renews such an entry fails with PermissionError when it renames its file over it"
    fix = subject.as_root(commands.find(tree.path, "-type d", "chmod -t", plain=tree.is_plain))
    yield from tree.finding(WARNING, what, stuck, why, fix)


def _others_blocked(subject: Subject) -> Iterator[Finding]:
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
        yield from tree.finding(WARNING, what, entries, why, _remedy(subject))


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


def modes(subject: Subject) -> Iterator[Finding]:
    """Own files and directories that the owner, or the group that shares the cache, cannot use."""
    tree = subject.tree
    ours = [entry for entry in tree.entries if entry.uid == subject.machine.uid]
    why = "the owner itself is locked out: the tool fails there"
    yield from _lacking(subject, ours, _for_owner, ERROR, "cannot be used by their own owner", why)
    if tree.sharing == rights.GROUP:
        yield from _closed_to_group(subject, [entry for entry in ours if entry.gid == tree.top.gid])
    elif tree.sharing in rights.OPEN and len(ours) < len(tree.entries):
        # Only said: to open files to every user of the machine is not for us to decide.
        closed = [entry for entry in ours if entry.is_file and not entry.mode & stat.S_IROTH]
        what = f"{plural(len(closed), 'file')} closed to the other users of the cache"
        why = "a tool of theirs that finds such an entry takes it for a hit and fails with PermissionError"
        selection = f"-type f -uid {subject.machine.uid}"
        fix = commands.find(tree.path, selection, "chmod a+r", plain=tree.is_plain)
        yield from tree.finding(WARNING, what, closed, why, fix)


def _closed_to_group(subject: Subject, ours: list[Seen]) -> Iterator[Finding]:
    gid = subject.tree.top.gid
    who = f"the group {gid} that shares the cache"
    why = f"jobs of other members of group {gid} fail with PermissionError there"
    yield from _lacking(subject, ours, _for_group, WARNING, f"closed to {who}", why)
    why = "harmless where a tool replaces files; one that writes into them (ninja, in-place caches) fails"
    rest = [entry for entry in ours if entry.is_file and not _for_group(entry)]
    yield from _lacking(subject, rest, _to_write, NOTE, f"not writable for {who}", why)


def _for_owner(entry: Seen) -> int:
    # The kernel is asked too: for root, and with an ACL, the bits alone do not decide.
    if entry.usable and entry.readable:
        return 0
    return rights.missing(entry.mode, stat.S_IRWXU, written=is_lock(entry.name))


def _for_group(entry: Seen) -> int:
    closed = rights.missing(entry.mode, stat.S_IRWXG, written=is_lock(entry.name))
    # What has to be opened anyway is opened all the way, as a job under umask 002 would have made it.
    return _to_write(entry) if closed else 0


def _to_write(entry: Seen) -> int:
    return rights.missing(entry.mode, stat.S_IRWXG, written=True)


def _lacking(
    subject: Subject, entries: list[Seen], missing: Callable[[Seen], int], severity: str, what: str, why: str
) -> Iterator[Finding]:
    """One finding for all directories, one for all files; what each lacks is exact in its repair."""
    for kind, names in (("d", ("directory", "directories")), ("f", ("file", "files"))):
        these = [entry for entry in entries if (entry.is_dir if kind == "d" else entry.is_file) and missing(entry)]
        everything = 0
        for entry in these:
            everything |= missing(entry)
        repairs = tuple(subject.tree.chmod(entry, add=missing(entry)) for entry in these)
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
        yield from subject.tree.finding(severity, f"{plural(len(these), *names)} {what}", these, why, fix, repairs)


def setgid(subject: Subject) -> Iterator[Finding]:
    """In a cache that a group shares: directories without setgid, and entries that belong to another group."""
    tree, me = subject.tree, subject.machine.uid
    if tree.sharing != rights.GROUP:
        return
    gid = tree.top.gid
    bare = [entry for entry in tree.entries if entry.is_dir and entry.gid == gid and not entry.mode & stat.S_ISGID]
    why = "what a job makes there belongs to the job's own group, and the other members cannot write it"
    fix = commands.find(tree.path, f"-type d -gid {gid}", "chmod g+s", plain=tree.is_plain)
    for ours in (True, False):
        these = [entry for entry in bare if (entry.uid == me) == ours]
        what = f"{directories(len(these))} without setgid in a cache that group {gid} shares"
        repairs = tuple(tree.chmod(entry, add=stat.S_ISGID) for entry in these if ours)
        yield from tree.finding(WARNING, what, these, why, fix if ours else subject.as_root(fix), repairs)
    strays = [entry for entry in tree.entries if entry.gid != gid and (entry.is_dir or entry.is_file)]
    what = f"{plural(len(strays), 'file or directory belongs', 'files and directories belong')} "
    what += f"to another group than {gid}, which shares the cache"
    why = f"members of group {gid} have only the rights of strangers there"
    fix = subject.as_root(commands.throughout(tree.path, f"chgrp {gid}", plain=tree.is_plain))
    yield from tree.finding(WARNING, what, strays, why, fix)


def acls(subject: Subject) -> Iterator[Finding]:
    """Access control lists that a mask has taken back, and directories without the default list of their top."""
    tree = subject.tree
    # A program that makes a directory with mode 0755, or a file with 0600, takes the list's rights back.
    masked: list[tuple[Seen, rights.Granted]] = []
    for entry in tree.entries:
        if entry.is_dir or entry.is_file:
            lost = [named for named in rights.named(acl_of(tree.full(entry), rights.ACCESS)) if _lost(entry, named)]
            masked += [(entry, named) for named in lost[:1]]
    if masked:
        named = masked[0][1]
        who = f"{named.kind} {named.number}"
        what = f"{plural(len(masked), 'access control list')} whose mask takes rights back: {who} is granted "
        what += f"{rights.letters(named.granted)} and has {rights.letters(named.effective)}"
        why = f"jobs of {who} fail with PermissionError although `getfacl` lists them"
        fix = subject.as_root(commands.throughout(tree.path, "setfacl -m m::rwX", plain=tree.is_plain))
        yield from tree.finding(WARNING, what, [entry for entry, _ in masked], why, fix)
    if not rights.named(acl_of(tree.path, rights.DEFAULT)):
        return
    folders = [entry for entry in tree.entries if entry.is_dir]
    without = [entry for entry in folders if not rights.named(acl_of(tree.full(entry), rights.DEFAULT))]
    what = f"{directories(len(without))} without the default access control list of the top"
    why = "what a job makes there is closed to the users and groups that the list names"
    command = f'setfacl -d -m "$(getfacl -cdEp {commands.quote(tree.path)} | grep . | paste -sd,)"'
    fix = subject.as_root(commands.find(tree.path, "-type d", command, plain=tree.is_plain))
    yield from tree.finding(WARNING, what, without, why, fix)


def _lost(entry: Seen, named: rights.Granted) -> bool:
    """Whether the mask takes back what matters: writing into a directory, reading a file."""
    matters = 0b011 if entry.is_dir else 0b100
    return bool((named.granted & ~named.effective) & matters)


def world_writable(subject: Subject) -> Iterator[Finding]:
    """A cache, or a directory on the way to it, in which every user of the machine can replace what jobs load."""
    tree, me = subject.tree, subject.machine.uid
    open_to_all = [entry for entry in tree.entries if entry.is_dir and rights.sharing(entry.mode) == rights.EVERYBODY]
    what = f"{directories(len(open_to_all))} in which every user can replace files"
    why = "what lies in a compile cache is code, and jobs run it; share it with a group, or use `ondol run`"
    fix = commands.find(tree.path, "-type d -perm -o+w ! -perm -1000", "chmod o-w", plain=tree.is_plain)
    if any(entry.uid != me for entry in tree.entries):
        # Simply closed, it would be closed to this user too.
        fix = commands.share_with_group(me, tree.path, subject.machine.gid if me else tree.top.gid, plain=tree.is_plain)
    yield from tree.finding(WARNING, what, open_to_all, why, fix)
    here = subject.real
    while here != "/":
        here = os.path.dirname(here)
        status = os.stat(here)
        if rights.sharing(status.st_mode) == rights.EVERYBODY:
            what = f"every user can rename or replace {subject.path}, because {here} has no sticky bit"
            why = "another directory can take its place at any time, with other code in it"
            fix = subject.as_owner(status.st_uid, f"chmod +t {commands.quote(here)}")
            yield Finding(WARNING, what, place(here, status), why, fix)
