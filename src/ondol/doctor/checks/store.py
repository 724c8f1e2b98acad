"""The store: its format, whose it is, who can publish, and lanes that nobody reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ondol.doctor import commands
from ondol.doctor.api import ERROR, NOTE, WARNING, Check, Finding, Place, Repair, look, place
from ondol.doctor.subject import STORE, Subject
from ondol.doctor.walk import Seen
from ondol.errors import StoreError
from ondol.host import identity
from ondol.store import believed, marker
from ondol.store import lane as lanes_of
from ondol.store.directory import DirectoryStore
from ondol.trust import owners
from ondol.words import plural

_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH
_THINGS = ("folder or pack", "folders and packs")


class Store(Check):
    name = "store"
    summary = "a store that others can change, of another format, or with writers or lanes that readers pass over"
    roles = frozenset({STORE})
    walks = True
    fixes = "takes the rights of others away in own stores and lanes, where they make readers pass entries over"

    def run(self, subject: Subject) -> Iterator[Finding]:
        judged = believed.judge((entry.name, entry.mode, entry.uid) for entry in subject.tree.entries)
        anybodys = list(self._anybodys(subject, judged))
        yield from anybodys
        yield from self._passed_over(subject, judged)
        if anybodys:
            return  # nothing else that it says can be believed
        try:
            store = DirectoryStore(subject.real, subject.machine.judge)
        except StoreError as error:
            where = look(subject.real)
            yield Finding(self.name, ERROR, error.what, where, f"{error.because}: jobs run cold", error.hint)
            return
        try:
            yield from self._marker(subject, store)
            yield from self._lanes_directory(subject, store)
            yield from self._unread(subject, store)
        finally:
            store.close()

    def _anybodys(self, subject: Subject, judged: believed.Believed) -> Iterator[Finding]:
        """What makes readers refuse the whole store: they cannot know who wrote it."""
        for name in ("", marker.NAME, marker.LANES):
            path = os.path.join(subject.real, name) if name else subject.real
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if not marker.is_open(status):
                continue
            what = f"others than its owner can change {path}, so no job uses the store"
            why = "whoever can write there can name himself a writer for everybody, or exchange what others published"
            add, drop = (stat.S_ISVTX, 0) if name == marker.LANES else (0, _OTHERS_CAN_WRITE)
            repair = Repair("chmod", path, status.st_dev, status.st_ino, add=add, drop=drop)
            repairs = (repair,) if status.st_uid == subject.machine.uid else ()
            fix = marker.mend(path, status)
            if judged.open_things:
                # Closed one by one, the next refusal would follow: it was a recursive chmod that opened them all.
                fix = believed.close(subject.real, shared=judged.shared, alone=False)
            yield Finding(self.name, ERROR, what, place(path, status), why, fix, 1, repairs)

    def _marker(self, subject: Subject, store: DirectoryStore) -> Iterator[Finding]:
        reader = owners.Reader(subject.machine.uid, frozenset(subject.machine.trusted), identity.overflow_uid())
        if owners.believes(reader, store.marker.owner) or store.marker.writers == marker.Writers():
            return
        what = f"the writers that the store names ({store.marker.writers}) are not believed by uid {reader.uid}"
        why = f"its {marker.NAME} belongs to uid {store.marker.owner}: only its own and root's entries are used"
        fix = f"export ONDOL_TRUST={store.marker.owner}"
        yield Finding(self.name, WARNING, what, look(os.path.join(subject.real, marker.NAME)), why, fix)

    def _lanes_directory(self, subject: Subject, store: DirectoryStore) -> Iterator[Finding]:
        path = os.path.join(subject.real, marker.LANES)
        status = os.lstat(path)
        fix = f"chmod 1777 {commands.quote(path)}"
        fix = fix if status.st_uid == subject.machine.uid else commands.as_root(subject.machine.uid, fix)
        writers = store.marker.writers
        several = writers.anyone or writers.groups or set(writers.uids) - {status.st_uid, 0}
        if several and not status.st_mode & stat.S_IWOTH:
            what = f"the store names writers ({writers}), and only uid {status.st_uid} can make lanes in it"
            why = "jobs of the other writers cannot publish"
            yield Finding(self.name, WARNING, what, place(path, status), why, fix)

    def _passed_over(self, subject: Subject, judged: believed.Believed) -> Iterator[Finding]:
        """Readers take nothing from a folder or a pack that anybody but the lane's owner can write, or owns."""
        tree, me = subject.tree, subject.machine.uid
        opened = [entry for entry, _ in _in_lanes(subject) if entry.mode & _OTHERS_CAN_WRITE]
        repairs = tuple(
            Repair("chmod", tree.full(entry), entry.device, entry.inode, drop=_OTHERS_CAN_WRITE)
            for entry in opened
            if entry.uid == me
        )
        for what, fix in judged.lines(subject.real, me):
            why = "for every job it is as if they had not been published"
            where = tree.place(opened[0]) if opened else Place(os.path.join(subject.real, marker.LANES))
            yield Finding(self.name, WARNING, what, where, why, fix, len(opened) or 1, repairs)
            opened, repairs = [], ()

    def _unread(self, subject: Subject, store: DirectoryStore) -> Iterator[Finding]:
        tree, lanes = subject.tree, os.path.join(subject.real, marker.LANES)
        closed = [entry for entry, owner in _in_lanes(subject) if not entry.readable and store.trusts(owner)]
        if closed:
            what = f"{plural(len(closed), *_THINGS)} of trusted writers that cannot be read"
            why = "for this user's jobs they are misses"
            fix = commands.as_root(subject.machine.uid, f"chmod -R a+rX {commands.quote(lanes)}")
            yield Finding(self.name, WARNING, what, tree.place(closed[0]), why, fix, len(closed))
        strangers = sorted({owner for _, owner in _in_lanes(subject) if not store.trusts(owner)})
        if strangers:
            what = f"lanes of uid {', '.join(map(str, strangers[:5]))} are not read by uid {subject.machine.uid}"
            why = f"the store names {store.marker.writers}; its owner can change that: ondol store writers add"
            yield Finding(self.name, NOTE, what, Place(lanes), why, "", len(strangers))


def _in_lanes(subject: Subject) -> Iterator[tuple[Seen, int]]:
    """What readers would look at, with the owner of its lane."""
    lanes: dict[str, int] = {}
    for entry in subject.tree.entries:
        parts = entry.name.split("/")
        if parts[0] != marker.LANES or len(parts) < 2:
            continue
        if len(parts) == 2 and entry.is_dir:
            lanes[parts[1]] = entry.uid
        hidden = len(parts) > 2 and parts[2] in lanes_of.RESERVED
        if parts[1] in lanes and not hidden and (entry.is_dir or entry.is_file):
            yield entry, lanes[parts[1]]
