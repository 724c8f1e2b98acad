"""Access control lists that promise more than they give, or that only part of a tree has."""

from __future__ import annotations

from collections.abc import Iterator

from ondol.doctor import acl, commands
from ondol.doctor.api import WARNING, Check, Finding
from ondol.doctor.subject import CACHE, Subject
from ondol.doctor.walk import Seen, acl_of
from ondol.words import directories, plural


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
        fix = commands.throughout(tree.path, "setfacl -m m::rwX", plain=tree.is_plain)
        fix = commands.as_root(subject.machine.uid, fix)
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
            fix = commands.find(tree.path, "-type d", command, plain=tree.is_plain)
            fix = commands.as_root(subject.machine.uid, fix)
            yield Finding(self.name, WARNING, what, tree.place(without[0]), why, fix, len(without))


def _lost(entry: Seen, named: acl.Named) -> bool:
    """Whether the mask takes back what matters: writing into a directory, reading a file."""
    matters = 0b011 if entry.is_dir else 0b100
    return bool((named.granted & ~named.effective) & matters)
