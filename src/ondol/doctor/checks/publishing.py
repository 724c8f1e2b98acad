"""The store, tried out: several processes publish and read the same entries in it at once, and clean up afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from hashlib import sha256

from ondol.doctor.api import ERROR, NOTE, Check, Finding, look
from ondol.doctor.subject import STORE, Subject
from ondol.errors import PackError, StoreError
from ondol.host import bounded, files
from ondol.light import Any
from ondol.store import lane as lanes_of
from ondol.store import marker, pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address, Entry, File

_SCOPE, _TOOL, _FINGERPRINT = "doctor-", "doctor", "any"
#: No examination takes so long.
_LONG_AGO = 24 * 3600.0
_PROCESSES = 4
_ENTRIES = 8
_ROUNDS = 3


class Publishing(Check):
    name = "publishing"
    summary = "four processes publish and read the same entries in the store at once, which is left as it was found"
    roles = frozenset({STORE})
    seconds = 90.0

    def run(self, subject: Subject) -> Iterator[Finding]:
        scope = _SCOPE + files.random_name()
        try:
            _open(subject).close()
            before = _my_lanes(subject)
        except (StoreError, OSError):
            return  # the store's own check says what is wrong
        try:
            troubles = _exercise(subject, scope)
        except StoreError as error:
            yield self._refused(subject, error)
            return
        finally:
            _clean_up(subject, scope, before)
        for trouble in dict.fromkeys(troubles):
            why = "what jobs publish may be lost, or jobs may read what nobody published"
            yield Finding(self.name, ERROR, f"the store does not keep its promises: {trouble}", look(subject.real), why)

    def _refused(self, subject: Subject, error: StoreError) -> Finding:
        where = look(subject.real)
        if _may_write(subject):
            return Finding(self.name, ERROR, error.what, where, f"{error.because}: jobs publish nothing", error.hint)
        what = f"uid {subject.machine.uid} cannot publish to {subject.path}: {error.because}"
        return Finding(self.name, NOTE, what, where, "its jobs read the store and add nothing to it", error.hint)


def _open(subject: Subject) -> DirectoryStore:
    return DirectoryStore(subject.real, subject.machine.judge)


def _may_write(subject: Subject) -> bool:
    return os.access(os.path.join(subject.real, marker.LANES), os.W_OK | os.X_OK, effective_ids=True)


def _my_lanes(subject: Subject) -> set[str]:
    names = os.listdir(os.path.join(subject.real, marker.LANES))
    return {name for name in names if name.startswith(f"{subject.machine.uid}-")}


def _entry(scope: str, number: int, writer: int) -> Entry:
    """The same address for all writers, other bytes for each: as compilers do that are not deterministic."""
    body = f"{number} by {writer} ".encode() * 200
    return Entry(Address(scope, _TOOL, _FINGERPRINT, f"key-{number}"), (File("probe", False, body),), f"probe {number}")


def _exercise(subject: Subject, scope: str) -> list[str]:
    store = _open(subject)
    store.my_lane()  # before all do it at once, so that a refusal comes as one error
    store.close()
    answers = bounded.in_parallel(
        list(range(_PROCESSES)), lambda writer: _worker(subject, scope, writer), _PROCESSES, Publishing.seconds / 2
    )
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
    troubles: list[str] = []
    entries = [_entry(scope, number, writer) for number in range(_ENTRIES)]
    store = _open(subject)
    published = store.publish((entry.address, pack.encode(entry)) for entry in entries)
    store.close()
    seen: dict[str, str] = {}
    for _ in range(_ROUNDS):
        seen |= _read(subject, scope, troubles)
    return {"new": sum(outcome.new for outcome in published), "seen": seen, "troubles": troubles}


def _read(subject: Subject, scope: str, troubles: list[str]) -> dict[str, str]:
    """What a reader sees now: the digest of each entry, which is there whole or not at all."""
    store = _open(subject)
    seen: dict[str, str] = {}
    try:
        for stored in store.index(_TOOL, [scope]):
            try:
                data = store.fetch(stored)
                pack.check_files(data, stored.address)
                seen[stored.address.key] = sha256(data).hexdigest()
            except PackError as error:
                troubles.append(f"a reader saw a broken entry: {error.line()}")
            except OSError as error:
                troubles.append(f"a reader could not read what is listed: {error.strerror or error}")
    finally:
        store.close()
    return seen


def _clean_up(subject: Subject, scope: str, lanes_before: set[str]) -> None:
    """Our entries, those of earlier examinations that were killed, and our lane if there was none before."""
    store = _open(subject)
    for lane in store.lanes():
        if lane.owner != subject.machine.uid:
            continue
        # Through the open descriptor: whatever takes the lane's name meanwhile, nothing else is removed.
        inside = f"/proc/self/fd/{lane.fd}"
        for left in [scope, *_forgotten(inside)]:
            files.remove_tree(os.path.join(inside, left))
        if lane.name not in lanes_before:
            _remove_lane(lane, os.path.join(subject.real, marker.LANES, lane.name))
    store.close()


def _forgotten(lane: str) -> list[str]:
    long_ago = time.time() - _LONG_AGO
    names = [name for name in os.listdir(lane) if name.startswith(_SCOPE)]
    return [name for name in names if os.lstat(os.path.join(lane, name)).st_mtime < long_ago]


def _remove_lane(lane: lanes_of.Lane, path: str) -> None:
    for folder in (f"/proc/self/fd/{lane.fd}/{lanes_of.TMP}", path):
        try:
            os.rmdir(folder)
        except OSError:
            continue  # never made, or a job has begun to use it
