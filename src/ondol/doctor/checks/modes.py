"""The user's own files and directories whose mode keeps the user, or those who share the cache, out."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator

from ondol.doctor import commands, rights
from ondol.doctor.api import ERROR, NOTE, WARNING, Check, Finding, Repair
from ondol.doctor.subject import CACHE, Subject
from ondol.doctor.walk import Seen, is_lock
from ondol.words import plural

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
    repairs = tuple(
        Repair("chmod", subject.tree.full(entry), entry.device, entry.inode, add=bits) for entry, bits in lacking
    )
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
