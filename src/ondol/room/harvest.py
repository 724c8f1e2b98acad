"""After the command: which entries were used, which are new, and the new ones as path-free entries to publish."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ondol.errors import EntryRefused
from ondol.host.identity import Host
from ondol.room.fill import Filled
from ondol.store.entry import MAX_FILES, MAX_RAW_BYTES, Address, Entry, File
from ondol.tools.api import CacheDir, Found, Refused, Tool


class Used(NamedTuple):
    """What became of the filled entries. `known` is False where the file system keeps no access times."""

    known: bool
    used: list[Filled]
    #: Replaced by the tool: it was filled, and the tool made it again all the same.
    remade: list[Filled]


#: (from, to), in seconds since the epoch: somebody who was killed may have been writing then.
Span = tuple[float, float]
#: Seconds after which a file that nobody has touched is taken for finished.
SETTLING = 10.0


class New(NamedTuple):
    found: list[Found]
    refused: list[Refused]


def usage(cache: CacheDir, filled: Sequence[Filled], *, keeps_atime: bool) -> Used:
    """Must run before anything of ours reads the room."""
    used: list[Filled] = []
    remade: list[Filled] = []
    for entry in filled:
        try:
            status = cache.status("", entry.witness[len(cache.path) + 1 :])
        except OSError:
            continue  # the command removed it
        if status.st_ino != entry.inode or entry.modified not in (None, status.st_mtime_ns):
            remade.append(entry)
        elif status.st_atime_ns != 0:
            used.append(entry)
    return Used(keeps_atime, used if keeps_atime else [], remade)


def new_entries(
    tool: Tool, cache: CacheDir, known: Collection[tuple[str, str]], host: Host, cut_off: Sequence[Span] = ()
) -> New:
    """The entries in the cache directory that are not `known` (fingerprint and key), whole ones only.

    `cut_off`: what was written then is whole only if the tool itself says so.
    """
    found: list[Found] = []
    refused: list[Refused] = []
    try:
        for item in tool.scan(cache, host):
            if isinstance(item, Refused):
                refused.append(item)
            elif (item.fingerprint, item.key) in known:
                continue
            elif cut_off and not item.sealed and _written_during(cache, item, cut_off):
                refused.append(
                    Refused("cut-off", item.place, "its writer was killed, and nothing says that it is whole")
                )
            else:
                found.append(item)
    except OSError as error:
        refused.append(Refused("unreadable", ".", error.strerror or str(error)))
    except MemoryError:
        refused.append(Refused("unfit", ".", "looking at the cache takes more memory than Ondol allows itself"))
    return New(found, refused)


def _written_during(cache: CacheDir, found: Found, spans: Sequence[Span]) -> bool:
    times = [cache.status(found.folder, name).st_mtime for name in found.names]
    return any(begin <= time <= end for time in times for begin, end in spans)


def read_entry(
    tool: Tool,
    cache: CacheDir,
    found: Found,
    scope: str,
    provenance: dict[str, Any],
    trusts: Callable[[int], bool] = lambda _uid: True,
    unchanged_since: float = math.inf,
) -> Entry:
    """Read one entry as a whole. Raises `EntryRefused` if it is torn, changes while it is read, or is a stranger's.

    `unchanged_since`: before it was scanned, where somebody may be at work. A second writer of the same entry moves
    files of his into it one by one, and a rename changes no time but this.
    """
    before = _state(cache, found)
    size = sum(status[2] for _, status in before)
    if any(status[4] / 1e9 > unchanged_since for _, status in before):
        raise EntryRefused(f"{found.place} is being written", because="mixed")
    if size > MAX_RAW_BYTES or len(found.names) > MAX_FILES:
        # Before anything is read: whoever left a terabyte of nothing must not take our memory with it.
        raise EntryRefused(f"{found.place} has {len(found.names)} files of {size} bytes", because="unfit")
    try:
        contents = [(name, _read(cache, found, name, trusts)) for name in found.names]
    except OSError as error:
        raise EntryRefused(f"{found.place}: {error.strerror or error}", because="unreadable")
    if _state(cache, found) != before:
        raise EntryRefused(f"{found.place} changed while it was read", because="mixed")
    listing = dict(before)
    entry_files = tuple(
        File(name, bool(listing[name][0] & 0o100), tool.detach(found, name, data, cache)) for name, data in contents
    )
    version = tool.made_by(dict(contents))
    if version:
        provenance = {**provenance, tool.row.name: version}
    address = Address(scope, tool.row.name, found.fingerprint, found.key)
    return Entry(address, entry_files, found.title, found.seconds, provenance)


def _read(cache: CacheDir, found: Found, name: str, trusts: Callable[[int], bool]) -> bytes:
    """Whoever publishes it vouches for it, so it must come from somebody whose word counts."""
    data, status = cache.read_with_status(found.folder, name)
    if not trusts(status.st_uid):
        whose = f"{found.place}: {name} belongs to uid {status.st_uid}, who is not one of the store's writers"
        raise EntryRefused(f"{whose} (fix: --trust {status.st_uid}, if you vouch for them)", because="untrusted")
    if status.st_nlink > 1:
        # Whoever has the other name can still write into it; or it is a file of ours that somebody linked here.
        raise EntryRefused(f"{found.place}: {name} has another name elsewhere", because="several-names")
    return data


def _state(cache: CacheDir, found: Found) -> list[tuple[str, tuple[int, int, int, int, int]]]:
    """What a writer that is still at it would change."""
    try:
        statuses = [(name, cache.status(found.folder, name)) for name in found.names]
    except OSError as error:
        raise EntryRefused(f"{found.place} went away: {error.strerror or error}", because="unreadable")
    return [(name, (s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)) for name, s in statuses]
