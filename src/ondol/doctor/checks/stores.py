"""The store: its format, whose it is, who can publish, lanes that nobody reads; and publishing, tried out."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from typing import Any

from ondol.doctor import commands
from ondol.doctor.api import ERROR, NOTE, WARNING, Finding, Location, Repair, look, place
from ondol.doctor.subject import Subject
from ondol.doctor.walk import Seen
from ondol.errors import PackError, StoreError
from ondol.host import bounded, files, identity
from ondol.store import check, marker, pack
from ondol.store import lane as lanes_of
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address, Entry, File
from ondol.trust import owners
from ondol.units import plural


def store(subject: Subject) -> Iterator[Finding]:
    """A store that others can change, of another format, or with writers or lanes that readers pass over."""
    judged = check.judge((entry.name, entry.mode, entry.uid) for entry in subject.tree.entries)
    anybodys = list(_anybodys(subject, judged))
    yield from anybodys
    yield from _passed_over(subject, judged)
    if anybodys:
        return  # nothing else that it says can be believed
    try:
        opened = closing(_open(subject))
    except StoreError as error:
        yield Finding(ERROR, error.what, look(subject.real), f"{error.because}: jobs run cold", error.hint)
        return
    with opened as directory:
        yield from _writers(subject, directory)
        yield from _unread(subject, directory)


def _anybodys(subject: Subject, judged: check.Believed) -> Iterator[Finding]:
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
        why = "a user who can write there can name himself a writer, or replace what others published"
        add, drop = (stat.S_ISVTX, 0) if name == marker.LANES else (0, files.OTHERS_CAN_WRITE)
        repair = Repair("chmod", path, status.st_dev, status.st_ino, add=add, drop=drop)
        repairs = (repair,) if status.st_uid == subject.machine.uid else ()
        fix = marker.mend(path, status)
        if judged.open_things:
            # Closed one by one, the next refusal would follow: it was a recursive chmod that opened them all.
            fix = check.close(subject.real, shared=judged.shared, alone=False)
        yield Finding(ERROR, what, place(path, status), why, fix, 1, repairs)


def _writers(subject: Subject, directory: DirectoryStore) -> Iterator[Finding]:
    """Those that the store names: whether we believe it, and whether they can write."""
    reader = owners.Reader(subject.machine.uid, frozenset(subject.machine.trusted), identity.overflow_uid())
    owner, writers = directory.marker.owner, directory.marker.writers
    if not owners.believes(reader, owner) and writers != marker.Writers():
        what = f"the writers that the store names ({writers}) are not believed by uid {reader.uid}"
        why = f"its {marker.NAME} belongs to uid {owner}: only its own and root's entries are used"
        yield Finding(WARNING, what, look(os.path.join(subject.real, marker.NAME)), why, f"export ONDOL_TRUST={owner}")
    path = os.path.join(subject.real, marker.LANES)
    status = os.lstat(path)
    several = {word.partition(":")[0] for word in writers.words} - {str(status.st_uid), "0"}
    if several and not status.st_mode & stat.S_IWOTH:
        what = f"the store names writers ({writers}), and only uid {status.st_uid} can make lanes in it"
        fix = subject.as_owner(status.st_uid, f"chmod 1777 {commands.quote(path)}")
        yield Finding(WARNING, what, place(path, status), "jobs of the other writers cannot publish", fix)


def _passed_over(subject: Subject, judged: check.Believed) -> Iterator[Finding]:
    """Readers take nothing from a folder or a pack that anybody but the lane's owner can write, or owns."""
    tree, me = subject.tree, subject.machine.uid
    opened = [entry for entry, _ in _in_lanes(subject) if entry.mode & files.OTHERS_CAN_WRITE]
    repairs = tuple(tree.chmod(entry, drop=files.OTHERS_CAN_WRITE) for entry in opened if entry.uid == me)
    for what, fix in judged.lines(subject.real, me):
        why = "for every job it is as if they had not been published"
        where = tree.place(opened[0]) if opened else Location(os.path.join(subject.real, marker.LANES))
        yield Finding(WARNING, what, where, why, fix, len(opened) or 1, repairs)
        opened, repairs = [], ()


def _unread(subject: Subject, directory: DirectoryStore) -> Iterator[Finding]:
    lanes = os.path.join(subject.real, marker.LANES)
    closed = [entry for entry, owner in _in_lanes(subject) if not entry.readable and directory.trusts(owner)]
    what = f"{plural(len(closed), 'folder or pack', 'folders and packs')} of trusted writers that cannot be read"
    fix = subject.as_root(f"chmod -R a+rX {commands.quote(lanes)}")
    yield from subject.tree.finding(WARNING, what, closed, "for this user's jobs they are misses", fix)
    strangers = sorted({owner for _, owner in _in_lanes(subject) if not directory.trusts(owner)})
    if strangers:
        what = f"lanes of uid {', '.join(map(str, strangers[:5]))} are not read by uid {subject.machine.uid}"
        why = f"the store names {directory.marker.writers}; its owner can change that: ondol store writers add"
        yield Finding(NOTE, what, Location(lanes), why, "", len(strangers))


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


_TOOL, _FINGERPRINT = "doctor", "any"
_PROCESSES = 4
_ENTRIES = 8
_ROUNDS = 3


#: Half of what the check may take.
_EXERCISE = 45.0


def publishing(subject: Subject) -> Iterator[Finding]:
    """Four processes publish and read the same entries in the store at once, which is left as it was found."""
    scope = f"doctor-{files.random_name()}"
    where = look(subject.real)
    try:
        _open(subject).close()
        before = _my_lanes(subject)
    except (StoreError, OSError):
        return  # the store's own check says what is wrong
    try:
        troubles = _exercise(subject, scope)
    except StoreError as error:
        if os.access(os.path.join(subject.real, marker.LANES), os.W_OK | os.X_OK, effective_ids=True):
            yield Finding(ERROR, error.what, where, f"{error.because}: jobs publish nothing", error.hint)
        else:
            what = f"uid {subject.machine.uid} cannot publish to {subject.path}: {error.because}"
            yield Finding(NOTE, what, where, "its jobs read the store and add nothing to it", error.hint)
        return
    finally:
        _clean_up(subject, scope, before)
    for trouble in dict.fromkeys(troubles):
        why = "what jobs publish may be lost, or jobs may read what no job published"
        yield Finding(ERROR, f"the store does not keep its promises: {trouble}", where, why)


def _open(subject: Subject) -> DirectoryStore:
    return DirectoryStore(subject.real, subject.machine.judge)


def _my_lanes(subject: Subject) -> set[str]:
    names = os.listdir(os.path.join(subject.real, marker.LANES))
    return {name for name in names if name.startswith(f"{subject.machine.uid}-")}


def _entry(scope: str, number: int, writer: int) -> Entry:
    """The same address for all writers, other bytes for each: as compilers do that are not deterministic."""
    body = f"{number} by {writer} ".encode() * 200
    return Entry(Address(scope, _TOOL, _FINGERPRINT, f"key-{number}"), (File("probe", False, body),), f"probe {number}")


def _exercise(subject: Subject, scope: str) -> list[str]:
    with closing(_open(subject)) as directory:
        directory.my_lane()  # before all do it at once, so that a refusal comes as one error
    answers = bounded.in_parallel(
        list(range(_PROCESSES)), lambda writer: _worker(subject, scope, writer), _PROCESSES, _EXERCISE
    )
    for what, because, hint in (answer["refused"] for answer in answers if answer["refused"]):
        raise StoreError(what, because=because, hint=hint)
    troubles = [trouble for answer in answers for trouble in answer["troubles"]]
    final = _read(subject, scope, troubles)
    if len(final) != _ENTRIES:
        troubles.append(f"{_ENTRIES - len(final)} of {_ENTRIES} acknowledged entries are not there")
    if any(final.get(key, digest) != digest for answer in answers for key, digest in answer["seen"].items()):
        troubles.append("an entry that was read has changed since")
    winners = sum(answer["new"] for answer in answers)
    if winners != _ENTRIES:
        troubles.append(f"{winners} publishers of {_ENTRIES} entries were told that theirs is the one")
    return troubles


def _worker(subject: Subject, scope: str, writer: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"refused": [], "new": 0, "seen": {}, "troubles": []}
    entries = [_entry(scope, number, writer) for number in range(_ENTRIES)]
    with closing(_open(subject)) as directory:
        try:
            published = directory.publish((entry.address, pack.encode(entry)) for entry in entries)
        except StoreError as error:
            # Not raised: the others would be killed in the middle of a file, and the store is left as it was found.
            return {**answer, "refused": [error.what, error.because, error.hint]}
    for _ in range(_ROUNDS):
        answer["seen"] |= _read(subject, scope, answer["troubles"])
    return {**answer, "new": sum(outcome.new for outcome in published)}


def _read(subject: Subject, scope: str, troubles: list[str]) -> dict[str, str]:
    """What a reader sees now: the digest of each entry, which is there whole or not at all."""
    seen: dict[str, str] = {}
    with closing(_open(subject)) as directory:
        for stored in directory.index(_TOOL, [scope]):
            try:
                data = directory.fetch(stored)
                pack.check_files(data, stored.address)
                seen[stored.address.key] = sha256(data).hexdigest()
            except PackError as error:
                troubles.append(f"a reader saw a broken entry: {error.line()}")
            except OSError as error:
                troubles.append(f"a reader could not read what is listed: {error.strerror or error}")
    return seen


def _clean_up(subject: Subject, scope: str, lanes_before: set[str]) -> None:
    """Our entries, and our lane if there was none before."""
    with closing(_open(subject)) as directory:
        for lane in directory.lanes():
            if lane.owner != subject.machine.uid:
                continue
            # Through the open descriptor: whatever takes the lane's name meanwhile, nothing else is removed.
            files.remove_below(lane.fd, scope)
            if lane.name not in lanes_before:
                files.rmdir_quietly(lanes_of.TMP, lane.fd)
                with suppress(OSError):  # a job has begun to use it
                    os.rmdir(os.path.join(subject.real, marker.LANES, lane.name))
