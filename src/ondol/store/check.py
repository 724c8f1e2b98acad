"""`ondol store verify`: read every pack, check every byte, set the bad ones aside; and count the packs that readers
pass over because of modes and owners, with what to type.

Somebody ran `chmod -R g+w` over the directory that a store lies in, meaning well: from then on others than the owner
could have written every pack, so no reader believes one. Nothing is damaged, and taking the rights back mends it.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from shlex import quote
from typing import NamedTuple

from ondol.errors import EntryUntrusted, PackError
from ondol.host import files
from ondol.store import marker, pack
from ondol.store.api import Backend, Stored
from ondol.store.lane import RESERVED, SUFFIX
from ondol.units import entries

#: A pack is lanes/LANE/SCOPE/TOOL/FINGERPRINT/KEY.pack.
_DEPTH = 6
#: (name below the store, mode, owner)
Thing = tuple[str, int, int]


class PackFinding(NamedTuple):
    stored: Stored
    #: `corrupt`: the bytes are wrong. `unreadable`: they could not be had, which says nothing about them. `untrusted`:
    #: whole, and not to be used: not signed as the store demands, or revoked.
    kind: str
    why: str
    set_aside: bool


class Verified(NamedTuple):
    good: int
    good_bytes: int
    findings: list[PackFinding]


def verify(backend: Backend, progress: Callable[[int, int], None], *, keep: bool = False) -> Verified:
    """Check all packs of all lanes. With `keep`, bad ones are only reported."""
    everything = list(backend.everything())
    good = good_bytes = 0
    findings: list[PackFinding] = []
    for number, stored in enumerate(everything, start=1):
        finding = _check(backend, stored, keep)
        if finding:
            findings.append(finding)
        else:
            good += 1
            good_bytes += stored.size
        progress(number, len(everything))
    return Verified(good, good_bytes, findings)


def _check(backend: Backend, stored: Stored, keep: bool) -> PackFinding | None:
    try:
        backend.vet(stored, pack.check_files(backend.fetch(stored), stored.address))
    except EntryUntrusted as error:
        return PackFinding(stored, "untrusted", error.what, False)
    except PackError as error:
        return PackFinding(stored, "corrupt", error.line(), not keep and backend.set_aside(stored))
    except FileNotFoundError:
        return None  # cleaned away while we looked
    except OSError as error:
        return PackFinding(stored, "unreadable", error.strerror or str(error), False)
    return None


# -- what readers pass over --------------------------------------------------------------------------------------------


class Believed(NamedTuple):
    packs: int
    #: Of these: others can write them, or a folder above them.
    writable: int
    #: What others can write in the lanes, and whose those things are.
    open_things: int
    open_owners: frozenset[int]
    #: (lane, its owner, packs in it that are not its owner's, or lie in a folder that is not)
    mixed: tuple[tuple[str, int, int], ...]
    #: Everybody may add a lane.
    shared: bool

    def lines(self, path: str, uid: int) -> list[tuple[str, str]]:
        """(what is wrong, the command that mends it)"""
        found = []
        if self.open_things:
            what = f"{self.writable} of {entries(self.packs)} are passed over by every reader, because others than the "
            what += "owner can write them or a folder above them (chmod -R g+w, chmod -R 777?)"
            found.append((what, close(path, shared=self.shared, alone=self.open_owners <= {uid})))
        for name, owner, number in self.mixed:
            where = os.path.join(path, marker.LANES, name)
            what = f"{number} of {entries(self.packs)} are passed over by every reader, because they, or a folder "
            what += f"above them, do not belong to uid {owner}, whose lane it is (chown?); jobs publish them again"
            command = f"find {quote(where)} -mindepth 1 ! -uid {owner} -prune -exec rm -r {{}} +"
            found.append((what, command if uid == 0 else f"sudo {command}"))
        return found


def close(path: str, *, shared: bool, alone: bool) -> str:
    """The command that takes everybody's rights to write away again, and leaves them the right to add a lane."""
    command = [f"chmod -R go-w {quote(path)}"]
    if shared:
        command.append(f"chmod 1777 {quote(os.path.join(path, marker.LANES))}")
    return " && ".join(one if alone or os.geteuid() == 0 else f"sudo {one}" for one in command)


def judge(things: Iterable[Thing]) -> Believed:
    """By the rules of `lane`: every folder on the way and the pack itself belong to one user, who alone writes them."""
    packs = writable = open_things = 0
    open_owners: set[int] = set()
    mixed: dict[tuple[str, int], int] = {}
    shared = False
    #: folder → (owner of its lane, others can write there, somebody else's)
    folders: dict[str, tuple[int, bool, bool]] = {}
    for name, mode, uid in things:
        parts = name.split("/")
        if name == marker.LANES:
            shared = bool(mode & stat.S_IWOTH)
        if parts[0] != marker.LANES or len(parts) < 2 or (len(parts) > 2 and parts[2] in RESERVED):
            continue
        owner, is_open, is_foreign = folders.get("/".join(parts[:-1]), (uid, False, False))
        if mode & files.OTHERS_CAN_WRITE:
            is_open, open_things = True, open_things + 1
            open_owners.add(uid)
        if uid != owner:
            is_foreign = True
            mixed.setdefault((parts[1], owner), 0)
        if stat.S_ISDIR(mode):
            folders[name] = owner, is_open, is_foreign
        elif stat.S_ISREG(mode) and len(parts) == _DEPTH and name.endswith(SUFFIX):
            packs, writable = packs + 1, writable + is_open
            if is_foreign:
                mixed[parts[1], owner] += 1
    lanes = tuple((*lane, number) for lane, number in mixed.items())
    return Believed(packs, writable, open_things, frozenset(open_owners), lanes, shared)


def look(path: str) -> Believed:
    """Those of a store, also of one that no job uses because of its modes."""
    return judge(_things(path))


def _things(path: str) -> Iterator[Thing]:
    lanes = os.path.join(path, marker.LANES)
    if not os.path.isdir(lanes):
        return  # opening the store says so
    for folder, _, names, fd in os.fwalk(lanes):
        inside = os.path.relpath(folder, path)
        status = os.fstat(fd)
        yield inside, status.st_mode, status.st_uid
        for name in names:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # cleaned away while we looked
            yield f"{inside}/{name}", status.st_mode, status.st_uid
