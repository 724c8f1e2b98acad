"""Everything that Ondol does to a store or a room, as operations that can be struck anywhere and then repeated."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from faults import job
from faults.reader_view import Contents, contents, room_violations, store_violations, truth
from handmade import key_of, make_entry, trust_everybody, write_triton_entry
from ondol.errors import OndolError, StoreError
from ondol.host.identity import this_host
from ondol.jobs import adopt
from ondol.room import fill, harvest, room, select
from ondol.store import gc, gc_plan, marker, pack, revocations
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address, Entry
from ondol.tools.api import CacheDir, Found
from ondol.tools.triton import Triton

WITNESS = "__grp__add.json"


class Operation(NamedTuple):
    name: str
    #: Make the state before it, in an empty directory.
    prepare: Callable[[Path], None]
    act: Callable[[Path], Any]
    #: Everything that is wrong with the state after it; `done`: it has ended well at least once.
    violations: Callable[[Path, bool], list[str]]
    #: The errors that its contract allows; none for operations that never raise.
    refusals: tuple[type[Exception], ...] = ()
    #: Whether a process that has met an error in it may go on living; else what it leaves is looked at after its end.
    lives_on: bool = True


@contextmanager
def opened(place: Path) -> Iterator[DirectoryStore]:
    store = DirectoryStore(str(place / "store"), trust_everybody)
    try:
        yield store
    finally:
        store.close()


def packs(*entries: Entry) -> list[tuple[Address, bytes]]:
    return [(entry.address, pack.encode(entry)) for entry in entries]


def _publish(place: Path, *entries: Entry) -> list[bool]:
    with opened(place) as store:
        return [published.new for published in store.publish(packs(*entries))]


def _make_store(place: Path) -> None:
    marker.create(str(place / "store"), marker.Writers(), shared=True)


def _find_pack(place: Path, number: int) -> Path:
    return next((place / "store" / "lanes").glob(f"*/main/*/*/{key_of(number)}.pack"))


def _rot(path: Path) -> None:
    """A bit flips on the disk."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(0o444)


# -- store creation ---------------------------------------------------------------------------------------------------


def _create(place: Path) -> bool:
    return marker.create(str(place / "new" / "store"), marker.Writers(("7",)), shared=True)


def _create_violations(place: Path, done: bool) -> list[str]:
    where = place / "new" / "store"
    found = store_violations(where, {})
    if done:
        mode = os.stat(where / "lanes").st_mode & 0o7777
        found += [] if mode == 0o1777 else [f"lanes has mode {mode:o}"]
        store = DirectoryStore(str(where), trust_everybody)
        found += [] if store.marker.writers.words == ("7",) else ["the marker lost its writers"]
        found += [] if store.publish(packs(make_entry(1)))[0].new else ["the new store takes no entry"]
        store.close()
    return found


# -- changing who may write, taking entries back ----------------------------------------------------------------------


def _with_writers(place: Path) -> None:
    marker.create(str(place / "store"), marker.Writers(("7",)), shared=True)


def _give_scopes(place: Path) -> marker.Marker:
    wanted = marker.Writers(("7:pr-*",))
    return marker.rewrite(str(place / "store"), lambda found: found._replace(writers=wanted, signed=("main",)))


def _scopes_violations(place: Path, done: bool) -> list[str]:
    """The old rules or the new ones, whole; never none, and never a mixture."""
    found = marker.look(str(place / "store"))
    old, new = (("7",), ()), (("7:pr-*",), ("main",))
    told = (found.writers.words, found.signed)
    return [] if told == new or (told == old and not done) else [f"the marker says {told}"]


def _revoke(place: Path) -> str:
    with opened(place) as store:
        return revocations.add(store.root_fd(), revocations.Revocation("run", "7", why="x" * 300))


def _revoke_violations(place: Path, done: bool) -> list[str]:
    """A word that is half written would make every reader run cold."""
    with opened(place) as store:
        records = revocations.read(store.root_fd(), "store", {os.geteuid()})
    whole = all((record.kind, record.value, record.why) == ("run", "7", "x" * 300) for record in records)
    return [] if whole and (records or not done) else [f"revoked: {records}"]


# -- publishing -------------------------------------------------------------------------------------------------------

_OLD, _NEW = make_entry(1, b"the first producer's bytes"), make_entry(1, b"the second producer's bytes")
_MANY = [make_entry(number) for number in range(2, 8)]


def _published(known: list[Entry], kept: list[Entry], wanted: list[Entry], *, rotten: bool = False) -> Any:
    def violations(place: Path, done: bool) -> list[str]:
        addresses = [entry.address for entry in (kept + wanted if done else kept)]
        return store_violations(place / "store", truth(known), addresses, rotten=rotten and not done)

    return violations


def _with_old(place: Path) -> None:
    _make_store(place)
    _publish(place, _OLD)


def _with_rotten_old(place: Path) -> None:
    _with_old(place)
    _rot(_find_pack(place, 1))


# -- setting aside, notes, cleaning -----------------------------------------------------------------------------------


def _aside_violations(place: Path, done: bool) -> list[str]:
    found = store_violations(place / "store", {}, rotten=not done)
    kept = list((place / "store" / "lanes").glob("*/quarantine/*.pack"))
    visible = list((place / "store" / "lanes").glob("*/main/*/*/*.pack"))
    return found if len(kept) + len(visible) == 1 else [*found, "the bad pack is gone, and nobody can look at it"]


def _set_aside(place: Path) -> bool:
    with opened(place) as store:
        return all(store.set_aside(stored) for stored in store.everything())


def _note_use(place: Path) -> None:
    with opened(place) as store:
        store.note_use([entry.address for entry in _MANY[:2]])


def _with_notes(place: Path) -> None:
    _with_many(place)
    with opened(place) as store:
        store.note_use([_OLD.address])
    usage = next((place / "store" / "lanes").glob("*/usage"))
    (usage / "1").write_text("")


def _note_violations(place: Path, done: bool) -> list[str]:
    with opened(place) as store:
        uses = store.last_uses()
    known = {entry.address for entry in [_OLD, *_MANY]}
    found = [] if set(uses) <= known else ["a note names what was never used"]
    found += [] if not done or _MANY[0].address in uses else ["the note is not there"]
    return found + store_violations(place / "store", truth([_OLD, *_MANY]), [entry.address for entry in _MANY])


def _with_many(place: Path) -> None:
    _make_store(place)
    _publish(place, *_MANY)


def _with_leftovers(place: Path) -> None:
    _with_many(place)
    for lane in (place / "store" / "lanes").iterdir():
        (lane / "quarantine").mkdir()
        for folder in ("tmp", "quarantine"):
            (lane / folder / "old").write_bytes(b"half")
            os.utime(lane / folder / "old", (0, 0))


_ROOM_FOR_THREE = 3 * max(len(data) for _, data in packs(*_MANY))


def _clean(place: Path) -> int:
    limits = gc_plan.StoreLimits(max_bytes=_ROOM_FOR_THREE)
    with opened(place) as store:
        return len(gc.clean(store, limits, time.time(), dry_run=False).removed)


def _clean_violations(place: Path, done: bool) -> list[str]:
    found = store_violations(place / "store", truth(_MANY))
    with opened(place) as store:
        left = len(list(store.everything()))
    if left < 3:
        found.append(f"cleaning left {left} entries, three would have fitted")
    if done and (left > 3 or list((place / "store" / "lanes").glob("*/tmp/old"))):
        found.append("cleaning did not clean")
    return found


# -- rooms ------------------------------------------------------------------------------------------------------------


#: Of the raw cache's entries.
_NUMBERS = (1, 2)


def _raw(place: Path) -> Path:
    for number in _NUMBERS:
        write_triton_entry(place / "raw", number, sources=False)  # three files: a first, a last and one between
    return place / "raw"


def _adopt(place: Path) -> int:
    with opened(place) as store:
        outcome = adopt.adopt(
            store, Triton(), str(place / "raw"), "main", {}, lambda _done, _total: None, dry_run=False
        ).outcome
    if outcome.trouble:
        raise StoreError(outcome.trouble[0])
    return outcome.published


def _adopt_prepare(place: Path) -> None:
    _make_store(place)
    _raw(place)


def _raw_entries(place: Path) -> list[Entry]:
    """What adopting must have published: the raw entries, path-free."""
    cache, tool = CacheDir(str(place / "raw"), ours=False), Triton()
    found = [item for item in tool.scan(cache, this_host()) if isinstance(item, Found)]
    return [harvest.read_entry(tool, cache, item, "main", {}) for item in found]


def _adopt_violations(place: Path, done: bool) -> list[str]:
    entries = _raw_entries(place)
    found = [] if len(entries) == len(_NUMBERS) else ["the adopted cache was changed"]
    return found + store_violations(place / "store", truth(entries), [e.address for e in entries] if done else [])


def _fill_prepare(place: Path) -> None:
    _adopt_prepare(place)
    _adopt(place)
    for folder in ("cache", "stage"):
        (place / folder).mkdir()


def _fill(place: Path) -> str:
    cache, stage = CacheDir(str(place / "cache"), ours=True), str(place / "stage")
    with opened(place) as store:
        wanted = select.select(store.index("triton", ["main"]), lambda _fingerprint: True, {}, 1 << 30).wanted
        missing = [copies for copies in wanted if not (place / "cache" / copies[0].address.key / WITNESS).exists()]
        result = fill.fill(store, Triton(), missing, cache, stage, lambda _done, _total: None, 1, 60.0)
    if result.bad:
        raise AssertionError(f"good packs were called bad: {result.bad}")
    return str(result.stopped)


def _fill_violations(place: Path, done: bool) -> list[str]:
    expected = {entry.address.key: _bound(place, contents(entry)) for entry in _raw_entries(place)}
    found = room_violations(place / "cache", {key: files(key) for key, files in expected.items()}, WITNESS)
    finished = len(list((place / "cache").glob(f"*/{WITNESS}")))
    if done and finished != len(_NUMBERS):
        found.append(f"{finished} of {len(_NUMBERS)} entries were filled")
    return found + store_violations(place / "store", truth(_raw_entries(place)))


def _bound(place: Path, files: Contents) -> Callable[[str], dict[str, bytes]]:
    def bind(key: str) -> dict[str, bytes]:
        bound = {name: data for name, _, data in files}
        children = json.loads(bound[WITNESS])["child_paths"]
        paths = {child: str(place / "cache" / key / child) for child in children}
        return {**bound, WITNESS: json.dumps({"child_paths": paths}).encode()}

    return bind


def _shared_folder_prepare(place: Path) -> None:
    """A helper built for another Python lies in the key's folder already: entries cannot be moved in at one stroke."""
    _fill_prepare(place)
    for number in _NUMBERS:
        folder = place / "cache" / key_of(number)
        folder.mkdir()
        (folder / "helper.cpython-39.so").write_bytes(b"helper")


def _use_room(place: Path) -> None:
    made = room.open_room(str(place), keeps_atime=True)
    (Path(made.make_cache_dir("triton")) / "file").write_text("x")
    made.close()


def _room_violations(place: Path, _done: bool) -> list[str]:
    """A later run sweeps what a dead one left; only what a dead one had not yet signed waits for a day."""
    room.sweep(str(place))
    left = [path for path in place.iterdir() if path.name.startswith(room.PREFIX)]
    signed = [f"{path.name} was left behind" for path in left if job.is_signed(path)]
    for path in left:
        os.utime(path, (0, 0))
    room.sweep(str(place))
    return signed + [f"{path.name} is left for ever" for path in left if path.exists()]


_STORE = (StoreError,)
OPERATIONS = (
    Operation("change-writers", _with_writers, _give_scopes, _scopes_violations, (StoreError,)),
    Operation("revoke", _make_store, _revoke, _revoke_violations, (OSError, StoreError)),
    Operation("create", lambda place: None, _create, _create_violations, (OSError,)),
    Operation("publish_first", _make_store, lambda p: _publish(p, _OLD), _published([_OLD], [], [_OLD]), _STORE),
    Operation(
        "publish_many", _with_old, lambda p: _publish(p, *_MANY), _published([_OLD, *_MANY], [_OLD], _MANY), _STORE
    ),
    Operation("publish_taken", _with_old, lambda p: _publish(p, _NEW), _published([_OLD], [_OLD], []), _STORE),
    Operation(
        "publish_over_rotten",
        _with_rotten_old,
        lambda p: _publish(p, _NEW),
        _published([_NEW], [], [_NEW], rotten=True),
        _STORE,
    ),
    Operation("set_aside", _with_rotten_old, _set_aside, _aside_violations, _STORE),
    Operation("note_use", _with_notes, _note_use, _note_violations, _STORE),
    Operation("clean", _with_leftovers, _clean, _clean_violations, _STORE),
    Operation("adopt", _adopt_prepare, _adopt, _adopt_violations, (OndolError,)),
    Operation("fill", _fill_prepare, _fill, _fill_violations, _STORE),
    Operation("fill_beside_others", _shared_folder_prepare, _fill, _fill_violations, _STORE),
    Operation("room", lambda place: None, _use_room, _room_violations, (OSError, Exception), lives_on=False),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def fresh(operation: Operation, base: Path) -> Callable[[], Path]:
    """A function that puts the state before the operation into one and the same place, again and again."""
    template, place = base / "before", base / "place"
    place.mkdir(parents=True)
    operation.prepare(place)
    os.rename(place, template)

    def again() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place, symlinks=True)
        return place

    return again
