"""A store in a directory: local disk, NFS, Lustre, a read-only mount. No locks, no server, any number of users.

    <store>/ondol-store.json     what it is and who may publish for everybody (`marker`)
    <store>/lanes/…              one subtree per writing UID (`lane`)

Readers merge the lanes they trust. Writers write only in their own. The write and delete order, and what each step
survives, is docs/design/write-ordering.md; the names W1… below are from there.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ondol.errors import PackError, StoreError, StoreMissing
from ondol.foreign_text import is_plain_name
from ondol.host import files
from ondol.store import lane as lanes_of
from ondol.store import marker, pack, usage
from ondol.store.api import Published, Stat, Stored
from ondol.store.entry import MAX_PACK_BYTES, Address
from ondol.store.lane import SUFFIX, Lane, in_spite_of_cleaning

#: Given what the store's marker says: (owner of a lane, scope) → may it be read; without a scope: is any of it.
Judge = Callable[[marker.Marker], Callable[..., bool]]
#: Packs that are written, synced and linked together: enough to share journal commits, few enough descriptors.
BATCH = 64


class DirectoryStore:
    """See `store.api.Backend` for the contract."""

    def __init__(self, path: str, judge: Judge) -> None:
        self.where = path
        self._mine: Lane | None = None
        #: Where a pack was last read: the next one most often lies beside it.
        self._last: Lane | None = None
        self._root = _open_root(path)
        try:
            marker.check_closed(path, os.fstat(self._root))
            self.marker = marker.read(self._root, path)
            self._lanes = _open_lanes(self._root, path)
        except BaseException as error:
            files.close_quietly(self._root)
            raise _refusal(path, error, "read") if isinstance(error, OSError) else error
        #: (owner, scope) → whether this reader takes what that UID vouches for; without a scope: in any.
        self.trusts = judge(self.marker)
        self.vet: Callable[[Stored, Any], None] = lambda _stored, _manifest: None
        self.check_writer: Callable[[str, bool], None] = lambda _scope, _signs: None

    # -- reading ------------------------------------------------------------------------------------------------

    def lanes(self, wanted: Callable[[int], bool] = lambda _owner: True) -> Iterator[Lane]:
        """Every lane that one user controls, of wanted owners; each is open until the next one is asked for."""
        self._let_go_of_last()  # its folders may have been removed, and made again
        try:
            seen = lanes_of.listed(self._lanes)
        except OSError as error:
            raise _refusal(self.where, error, "read")
        for owner, name in seen:
            if not wanted(owner):
                continue
            try:
                lane = Lane(self._lanes, name, owner)
            except OSError as error:
                lanes_of.pass_over(error)
                continue  # unreadable, or exchanged at this moment: nobody's lane
            try:
                yield lane
            finally:
                lane.close()

    def index(self, tool: str, scopes: Sequence[str]) -> list[Stored]:
        found: dict[str, list[Stored]] = {scope: [] for scope in scopes}
        for lane, scope in self._trusted(scopes):
            found[scope] += [stored for stored in self._list(lane, scope, tool) if stored.size <= MAX_PACK_BYTES]
        return [stored for scope in scopes for stored in found[scope]]

    def find(self, addresses: Collection[Address]) -> list[Stored]:
        found: list[Stored] = []
        for lane in self.lanes(self.trusts):
            for address in addresses:
                if self.trusts(lane.owner, address.scope):
                    try:
                        status = os.stat(address.key + SUFFIX, dir_fd=lane.folder(*address[:3]), follow_symlinks=False)
                    except OSError as error:
                        lanes_of.pass_over(error)
                        continue  # not in this lane
                    found.append(_stored(lane, address, status, trusted=True))
        return [stored for stored in found if stored.size <= MAX_PACK_BYTES]

    def has_more_than(self, number: int, tool: str, scopes: Sequence[str]) -> bool:
        for lane, scope in self._trusted(scopes):
            for fingerprint in lane.names(scope, tool):
                number -= len(lane.names(scope, tool, fingerprint))
                if number < 0:
                    return True
        return False

    def tools(self, scopes: Sequence[str]) -> set[str]:
        return {name for lane, scope in self._trusted(scopes) for name in lane.names(scope)}

    def passed_over(self, tools: Collection[str], scopes: Sequence[str]) -> list[tuple[int, str, int]]:
        found: dict[tuple[int, str], int] = {}
        budget = iter(range(lanes_of.LOOKED_AT))
        for owner, name, closed in lanes_of.there(self._lanes):
            why = "not trusted" if closed else "others can write in their lane"
            for scope in scopes:
                if not closed or not self.trusts(owner, scope):
                    count = lanes_of.count(self._lanes, f"{name}/{scope}", tools, budget)
                    found[owner, why] = found.get((owner, why), 0) + count
        return [(*who, count) for who, count in found.items() if count]

    def _trusted(self, scopes: Sequence[str]) -> Iterator[tuple[Lane, str]]:
        """Which of these scopes of which lanes may be read, lane by lane."""
        for lane in self.lanes(self.trusts):
            for scope in scopes:
                if self.trusts(lane.owner, scope):
                    yield lane, scope

    def everything(self) -> Iterator[Stored]:
        for lane in self.lanes():
            for scope in lane.names():
                if scope not in lanes_of.RESERVED:
                    for tool in lane.names(scope):
                        yield from self._list(lane, scope, tool)

    def _list(self, lane: Lane, scope: str, tool: str) -> Iterator[Stored]:
        trusted = self.trusts(lane.owner, scope)
        for fingerprint in lane.names(scope, tool):
            if not all(map(is_plain_name, (scope, tool, fingerprint))):
                continue
            for key, status in lane.packs(scope, tool, fingerprint):
                if is_plain_name(key):
                    yield _stored(lane, Address(scope, tool, fingerprint, key), status, trusted=trusted)

    def _folder_of(self, stored: Stored) -> tuple[Lane, int]:
        """The lane and the folder of a pack. Raises `OSError` if they are not there, or not its owner's any more."""
        if self._last is None or (self._last.name, self._last.owner) != (stored.place, stored.owner):
            self._let_go_of_last()
            self._last = Lane(self._lanes, stored.place, stored.owner)
        return self._last, self._last.folder(*stored.address[:3])

    def _let_go_of_last(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None

    def fetch(self, stored: Stored) -> bytes:
        try:
            lane, folder = self._folder_of(stored)
            return lanes_of.read_pack(folder, stored.address.key + SUFFIX, lane.owner, MAX_PACK_BYTES)
        except OSError as error:
            lanes_of.pass_over(error)
            raise

    # -- writing ------------------------------------------------------------------------------------------------

    def my_lane(self) -> Lane:
        if self._mine is not None:
            return self._mine
        try:
            mine: Lane = in_spite_of_cleaning(lambda: lanes_of.open_mine(self._lanes, self.where), lambda: None)
        except OSError as error:
            raise _refusal(self.where, error, "publish to")
        self._mine = mine
        return mine

    def before_forking(self) -> None:
        try:
            self.my_lane()  # so that all of them write in one
        except StoreError:
            pass  # whoever has something to publish says so

    def publish(self, packs: Iterable[tuple[Address, bytes]]) -> list[Published]:
        self.my_lane()
        outcomes: list[Published] = []
        rest = iter(packs)
        try:
            while batch := list(islice(rest, BATCH)):
                outcomes += self._publish_batch(batch)
        except OSError as error:
            raise _refusal(self.where, error, "publish to")
        return outcomes

    def _publish_batch(self, batch: Sequence[tuple[Address, bytes]]) -> list[Published]:
        names = [files.random_name() for _ in batch]
        contents = [data for _, data in batch]
        # W1: the bytes are on disk before any name points at them. After it neither tmp nor our lane is empty, so that
        # no cleaning can take them away.
        tmp = in_spite_of_cleaning(lambda: _write_in(self.my_lane(), names, contents), self._let_go_of_mine)
        lane = self.my_lane()
        outcomes: list[Published] = []
        try:
            for name, (address, _) in zip(names, batch, strict=True):
                new = in_spite_of_cleaning(partial(_link, lane, tmp, name, address), lane.leave)
                outcomes.append(Published(address, new))
        finally:
            _remove(tmp, names)
        _sync_names(lane, {address[:3] for address, _ in batch})
        return outcomes

    def _let_go_of_mine(self) -> None:
        if self._mine is not None:
            self._mine.close()
            self._mine = None

    def set_aside(self, stored: Stored) -> bool:
        try:
            lane, folder = self._folder_of(stored)
            _move_aside(lane, folder, stored.address)
        except OSError:
            return False  # not our lane, or read-only: a miss all the same
        return True

    def delete(self, stored: Stored) -> bool:
        try:
            _, folder = self._folder_of(stored)
        except OSError:
            return False
        return files.unlink_quietly(stored.address.key + SUFFIX, dir_fd=folder)

    # -- usage and housekeeping ---------------------------------------------------------------------------------

    def note_use(self, addresses: Iterable[Address], job: str = "") -> None:
        try:
            if job:
                usage.note_job(self.my_lane(), job, addresses)
            else:
                usage.note(self.my_lane(), addresses, time.time())
        except (OSError, StoreError):
            return  # read-only or full: the hint is lost, nothing else

    def last_uses(self) -> dict[Address, float]:
        latest: dict[Address, float] = {}
        now = time.time()
        for lane in self.lanes(self.trusts):
            for address, day in usage.read(lane, now):
                if self.trusts(lane.owner, address.scope):
                    latest[address] = max(day, latest.get(address, 0.0))
        return latest

    def uses_of(self, job: str) -> set[Address]:
        lanes = self.lanes(self.trusts)
        return {one for lane in lanes for one in usage.of_job(lane, job) if self.trusts(lane.owner, one.scope)}

    def report(self, rows: Iterable[Stat]) -> None:
        try:
            usage.note_stats(self.my_lane(), rows, time.time())
        except (OSError, StoreError):
            return

    def reports(self) -> list[Stat]:
        now = time.time()
        found = [(lane.owner, row) for lane in self.lanes(self.trusts) for row in usage.read_stats(lane, now)]
        return usage.add_up(row for owner, row in found if self.trusts(owner, row.scope))

    def remove_if_empty(self, lane: Lane) -> None:
        files.rmdir_quietly(lane.name, self._lanes)

    def root_fd(self) -> int:
        return self._root

    def close(self) -> None:
        self._let_go_of_last()
        self._let_go_of_mine()
        # Closed twice, a number could be somebody else's file by then.
        for fd in (self._lanes, self._root):
            files.close_quietly(fd)
        self._lanes = self._root = -1


def _stored(lane: Lane, address: Address, status: os.stat_result, *, trusted: bool) -> Stored:
    on_disk = status.st_blocks * 512
    return Stored(address, lane.name, lane.owner, status.st_size, status.st_mtime, trusted, on_disk)


def _write_in(lane: Lane, names: Sequence[str], contents: Sequence[bytes]) -> int:
    tmp = files.make_dir(lanes_of.TMP, 0o700, dir_fd=lane.fd)
    try:
        _write_durably(tmp, names, contents)
    except BaseException:
        _remove(tmp, names)
        raise
    return tmp


def _remove(tmp: int, names: Sequence[str]) -> None:
    for name in names:
        files.unlink_quietly(name, dir_fd=tmp)
    files.close_quietly(tmp)


def _sync_names(lane: Lane, touched: set[tuple[str, ...]]) -> None:
    """W3: acknowledged entries survive power loss, with every folder on the way to them.

    By whom a folder was made does not matter: whoever made it may have been killed before syncing it.
    """
    for path in sorted(_with_those_above(touched)):
        try:
            files.fsync_dir(lane.folder(*path))
        except FileNotFoundError:
            continue  # cleaned away already, entry and folder


def _with_those_above(paths: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {path[:depth] for path in paths for depth in range(len(path) + 1)}


def _link(lane: Lane, tmp: int, name: str, address: Address) -> bool:
    """W2: one link(2) makes the pack visible, whole; an earlier good one of ours stays.

    An earlier one that is not good (a file system that lost unsynced data in a crash, a rotten disk) is set aside
    first: it would block its key for ever.
    """
    folder = lane.make_folder(*address[:3])
    final = address.key + SUFFIX
    if files.link_new(name, tmp, final, folder):
        return True
    try:
        pack.inspect(lanes_of.read_pack(folder, final, lane.owner, MAX_PACK_BYTES), address)
    except (PackError, lanes_of.NotTheirs, files.NotRegular):
        _move_aside(lane, folder, address)
        return files.link_new(name, tmp, final, folder)
    except FileNotFoundError:
        return files.link_new(name, tmp, final, folder)  # cleaned away at this moment
    return False


def _move_aside(lane: Lane, folder: int, address: Address) -> None:
    try:
        os.mkdir(lanes_of.QUARANTINE, 0o755, dir_fd=lane.fd)
    except FileExistsError:
        pass
    aside, owner = lanes_of.open_checked(lanes_of.QUARANTINE, lane.fd)
    with files.opened(aside):
        if owner == os.geteuid() != lane.owner:
            # Made by root in somebody's lane: its owner must be able to set aside and clean up there too.
            os.fchown(aside, lane.owner, -1)
        # Cut: tool and key may be 200 letters each, and a name that is too long would leave the bad pack in its place.
        kept_as = f"{address.tool[:60]}.{address.key[:120]}.{files.random_name()}{SUFFIX}"
        os.rename(address.key + SUFFIX, kept_as, src_dir_fd=folder, dst_dir_fd=aside)


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
    """Many at once: a journalling file system then commits once for all of them."""
    files.in_threads(os.fsync, descriptors)


def _open_root(path: str) -> int:
    try:
        # The root itself may be reached through a link: the user named it. Below it nothing is followed.
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StoreMissing(f"no store at {path}", because="there is no such directory", hint=f"ondol store init {path}")
    except OSError as error:
        raise _refusal(path, error, "read")


def _open_lanes(root: int, path: str) -> int:
    lanes = files.open_dir(marker.LANES, root)
    try:
        marker.check_closed(os.path.join(path, marker.LANES), os.fstat(lanes))
    except BaseException:
        files.close_quietly(lanes)
        raise
    return lanes


_HINTS = {
    **lanes_of.EXHAUSTED,
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
