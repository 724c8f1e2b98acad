"""A store in a directory: local disk, NFS, Lustre, a read-only mount. No locks, no server, any number of users.

    <store>/ondol-store.json     what it is and who may publish for everybody (`marker`)
    <store>/lanes/…              one subtree per writing UID (`lane`)

Readers merge the lanes they trust. Writers write only in their own. The write and delete order, and what each step
survives, is docs/design/write-ordering.md; the names W1… below are from there.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ondol.errors import PackError, StoreError, StoreMissing
from ondol.host import files
from ondol.light import Any
from ondol.store import lane as lanes_of
from ondol.store import marker, usage
from ondol.store.api import Published, Stored
from ondol.store.entry import MAX_PACK_BYTES, Address
from ondol.store.lane import SUFFIX, Lane
from ondol.words import is_plain_name

#: Given what the store's marker says: (owner of a lane, scope) → may it be read; without a scope: is any of it.
Judge = Callable[[marker.Marker], Callable[..., bool]]
#: Packs that are written, synced and linked together: enough to share journal commits, few enough descriptors.
BATCH = 64
_SYNC_THREADS = 8


class DirectoryStore:
    """See `store.api.Backend` for the contract."""

    def __init__(self, path: str, judge: Judge) -> None:
        self.where = path
        self._mine: Lane | None = None
        self._open_lanes: dict[str, Lane] = {}
        self._root = _open_root(path)
        try:
            self.marker = marker.read(self._root, path)
            self._lanes = _open_lanes(self._root, path)
        except BaseException:
            files.close_quietly(self._root)
            raise
        self._trusts = judge(self.marker)
        self.vet: Callable[[Stored, Any], None] = lambda _stored, _manifest: None

    # -- reading ------------------------------------------------------------------------------------------------

    def _all_lanes(self) -> list[Lane]:
        """Every lane that one user controls, our own first: what we made ourselves needs the least faith."""
        try:
            names = files.list_names(self._lanes)
        except OSError as error:
            raise _refusal(self.where, error, "read")
        for name in names:
            if name in self._open_lanes:
                continue
            try:
                self._open_lanes[name] = Lane(self._lanes, name)
            except OSError:
                continue  # a link, a file, an unreadable or shared directory: nobody's lane
        return sorted(self._open_lanes.values(), key=lambda lane: (lane.owner != os.geteuid(), lane.name))

    def index(self, tool: str, scopes: Sequence[str]) -> list[Stored]:
        trusted = [lane for lane in self._all_lanes() if self._trusts(lane.owner)]
        return [
            stored
            for scope in scopes
            for lane in trusted
            if self._trusts(lane.owner, scope)
            for stored in self._list(lane, scope, tool)
        ]

    def tools(self, scopes: Sequence[str]) -> set[str]:
        lanes = [lane for lane in self._all_lanes() if self._trusts(lane.owner)]
        return {
            name for scope in scopes for lane in lanes if self._trusts(lane.owner, scope) for name in lane.names(scope)
        }

    def everything(self) -> Iterator[Stored]:
        for lane in self._all_lanes():
            for scope in lane.names():
                if scope not in lanes_of.RESERVED:
                    for tool in lane.names(scope):
                        yield from self._list(lane, scope, tool)

    def _list(self, lane: Lane, scope: str, tool: str) -> Iterator[Stored]:
        trusted = self._trusts(lane.owner, scope)
        for fingerprint in lane.names(scope, tool):
            for key, status in lane.packs(scope, tool, fingerprint):
                address = Address(scope, tool, fingerprint, key)
                if all(map(is_plain_name, address)):
                    yield Stored(address, lane.name, lane.owner, status.st_size, status.st_mtime, trusted)

    def fetch(self, stored: Stored) -> bytes:
        lane = self._open_lanes[stored.place]
        scope, tool, fingerprint, key = stored.address
        return lanes_of.read_pack(lane.folder(scope, tool, fingerprint), key + SUFFIX, lane.owner, MAX_PACK_BYTES)

    # -- writing ------------------------------------------------------------------------------------------------

    def my_lane(self) -> Lane:
        if self._mine is None:
            try:
                self._mine = lanes_of.open_mine(self._lanes, self.where)
            except OSError as error:
                raise _refusal(self.where, error, "publish to")
        return self._mine

    def publish(self, packs: Iterable[tuple[Address, bytes]]) -> list[Published]:
        lane = self.my_lane()
        outcomes: list[Published] = []
        batch: list[tuple[Address, bytes]] = []
        try:
            for item in packs:
                batch.append(item)
                if len(batch) == BATCH:
                    outcomes += _publish_batch(lane, batch)
                    batch = []
            if batch:
                outcomes += _publish_batch(lane, batch)
        except OSError as error:
            raise _refusal(self.where, error, "publish to")
        return outcomes

    def set_aside(self, stored: Stored) -> bool:
        try:
            _move_aside(self._open_lanes[stored.place], stored.address)
        except OSError:
            return False  # not our lane, or read-only: a miss all the same
        return True

    def delete(self, stored: Stored) -> bool:
        lane = self._open_lanes[stored.place]
        try:
            folder = lane.folder(*stored.address[:3])
        except OSError:
            return False
        return files.unlink_quietly(stored.address.key + SUFFIX, dir_fd=folder)

    # -- usage and housekeeping ---------------------------------------------------------------------------------

    def note_use(self, addresses: Iterable[Address]) -> None:
        try:
            usage.note(self.my_lane(), addresses, time.time())
        except (OSError, StoreError):
            return  # read-only or full: the hint is lost, nothing else

    def last_uses(self) -> dict[Address, float]:
        latest: dict[Address, float] = {}
        for lane in self._all_lanes():
            if self._trusts(lane.owner):
                for address, day in usage.read(lane):
                    latest[address] = max(day, latest.get(address, 0.0))
        return latest

    def lanes(self) -> list[Lane]:
        """The open lanes, for `store stats` and for cleaning up behind dead writers."""
        return self._all_lanes()

    def trusts(self, owner: int, scope: str = "") -> bool:
        return self._trusts(owner, scope)

    def root_fd(self) -> int:
        return self._root

    def close(self) -> None:
        mine = [self._mine] if self._mine else []
        for lane in [*self._open_lanes.values(), *mine]:
            lane.close()
        self._open_lanes.clear()
        self._mine = None
        files.close_quietly(self._lanes)
        files.close_quietly(self._root)


def _publish_batch(lane: Lane, batch: Sequence[tuple[Address, bytes]]) -> list[Published]:
    tmp = lane.make_folder(lanes_of.TMP, mode=0o700)
    names = [files.random_name() for _ in batch]
    touched: set[tuple[str, ...]] = set()
    try:
        _write_durably(
            tmp, names, [data for _, data in batch]
        )  # W1: the bytes are on disk before any name points at them
        outcomes: list[Published] = []
        for name, (address, _) in zip(names, batch, strict=True):
            outcomes.append(Published(address, _link(lane, tmp, name, address)))
            touched.add(address[:3])
    finally:
        for name in names:
            files.unlink_quietly(name, dir_fd=tmp)
    # W3: acknowledged entries survive power loss, with every folder on the way to them.
    for path in sorted(touched):
        files.fsync_dir(lane.folder(*path))
        lane.sync_above(*path)
    return outcomes


def _link(lane: Lane, tmp: int, name: str, address: Address) -> bool:
    """W2: one link(2) makes the pack visible, whole; an earlier good one of ours stays.

    An earlier one that is not good (a file system that lost unsynced data in a crash, a rotten disk) is set aside
    first: it would block its key for ever.
    """
    folder = lane.make_folder(*address[:3])
    final = address.key + SUFFIX
    if files.link_new(name, tmp, final, folder):
        return True
    from ondol.store.pack import inspect  # only here: most publishing meets no earlier pack, and reading needs no more

    try:
        inspect(lanes_of.read_pack(folder, final, lane.owner, MAX_PACK_BYTES), address)
    except (PackError, lanes_of.NotTheirs, files.NotRegular):
        _move_aside(lane, address)
        return files.link_new(name, tmp, final, folder)
    except FileNotFoundError:
        return files.link_new(name, tmp, final, folder)  # cleaned away at this moment
    return False


def _move_aside(lane: Lane, address: Address) -> None:
    folder = lane.folder(*address[:3])
    try:
        os.mkdir(lanes_of.QUARANTINE, 0o755, dir_fd=lane.fd)
    except FileExistsError:
        pass
    aside, owner = lanes_of.open_checked(lanes_of.QUARANTINE, lane.fd)
    try:
        if owner == os.geteuid() != lane.owner:
            # Made by root in somebody's lane: its owner must be able to set aside and clean up there too.
            os.fchown(aside, lane.owner, -1)
        kept_as = f"{address.tool}.{address.key}.{files.random_name()}{SUFFIX}"
        os.rename(address.key + SUFFIX, kept_as, src_dir_fd=folder, dst_dir_fd=aside)
    finally:
        os.close(aside)


def _write_durably(tmp: int, names: Sequence[str], contents: Sequence[bytes]) -> None:
    descriptors: list[int] = []
    try:
        for name, data in zip(names, contents, strict=True):
            descriptors.append(os.open(name, files.CREATE, 0o600, dir_fd=tmp))
            files.write_all(descriptors[-1], data)
            os.fchmod(descriptors[-1], 0o444)
        _sync(descriptors)
    except BaseException:
        for fd in descriptors:
            files.close_quietly(fd)
        raise
    while descriptors:
        # Checked, one by one: on NFS a full disk or quota may show only at close.
        os.close(descriptors.pop())


def _sync(descriptors: Sequence[int]) -> None:
    """fsync all; many at once from threads, because a journalling file system then commits once for all of them."""
    if len(descriptors) < 4:
        for fd in descriptors:
            os.fsync(fd)
        return
    import threading

    failures: list[OSError] = []

    def work(share: Sequence[int]) -> None:
        try:
            for fd in share:
                os.fsync(fd)
        except OSError as error:
            failures.append(error)

    shares = [descriptors[number::_SYNC_THREADS] for number in range(_SYNC_THREADS)]
    threads = [threading.Thread(target=work, args=(share,)) for share in shares if share]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _open_root(path: str) -> int:
    try:
        # The root itself may be reached through a link: the user named it. Below it nothing is followed.
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StoreMissing(f"no store at {path}", because="there is no such directory", hint=f"ondol store init {path}")
    except OSError as error:
        raise _refusal(path, error, "read")


def _open_lanes(root: int, path: str) -> int:
    try:
        return files.open_dir(marker.LANES, root)
    except OSError as error:
        raise _refusal(path, error, "read")


_HINTS = {
    errno.ENOSPC: "ondol store gc --store {path} --max-size …, or free space or inodes there",
    errno.EDQUOT: "ondol store gc --store {path} --max-size …, or raise the quota",
    errno.EROFS: "mount it writable for jobs that publish, or run with --publish never",
    errno.EACCES: "chmod -R a+rX {path}; to let other users publish, its lanes directory must be mode 1777",
    errno.EPERM: "chmod -R a+rX {path}; to let other users publish, its lanes directory must be mode 1777",
    errno.ENOTDIR: "name a directory with --store, or move that file away and run: ondol store init {path}",
    errno.ENOENT: "ondol store init {path}",
    errno.ESTALE: "the server has replaced it; mount it again",
}


def _refusal(path: str, error: OSError, verb: str) -> StoreError:
    because = os.strerror(error.errno) if error.errno else str(error)
    try:
        status = os.stat(path)
        because += f" for uid {os.geteuid()} (owner {status.st_uid}, mode {status.st_mode & 0o7777:04o})"
    except OSError:
        because += f" for uid {os.geteuid()}"
    hint = _HINTS.get(error.errno or 0, "ondol store verify --store {path}").format(path=path)
    return StoreError(f"cannot {verb} the store at {path}", because=because, hint=hint)
