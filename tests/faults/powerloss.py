"""A model of power loss: which states may the disk be in, if only what was synced is sure to be there?

The calls of a real publish are recorded. For every moment of it all legal states of the disk are worked out:

* the contents of a file since its last fsync: all, none, half, zeros or garbage of them may have arrived;
* the names in a directory since its own last fsync: each may have arrived or not, in any combination.

This is weaker than any journalling file system promises (fsync of a file says nothing about its name, or about other
files), so what survives here survives there.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults.reader_view import Truth, store_violations
from handmade import trust_everybody
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address

#: A tree on disk: directories are dictionaries, files are bytes.
Tree = dict[str, Any]
#: More combinations than this for one moment are sampled, always with the same seed.
_MOST = 600


class Disk:
    """What is on the disk for sure, and what is on its way."""

    def __init__(self) -> None:
        #: inode → names for sure / content for sure
        self.names: dict[int, dict[str, int]] = {}
        self.data: dict[int, bytes] = {}
        #: inode → changes on their way, in order / the content that programs see
        self.changes: dict[int, list[tuple[str, int | None]]] = {}
        self.seen: dict[int, bytes] = {}

    def read(self, path: str) -> int:
        """Take what lies at `path` for synced."""
        number = os.lstat(path).st_ino
        if os.path.isdir(path):
            self.names[number] = {name: self.read(os.path.join(path, name)) for name in os.listdir(path)}
        else:
            self.data[number] = Path(path).read_bytes()
        return number

    def change(self, folder: int, name: str, target: int | None) -> None:
        self.changes.setdefault(folder, []).append((name, target))

    def sync(self, number: int) -> None:
        for name, target in self.changes.pop(number, []):
            _apply(self.names[number], name, target)
        if number in self.seen:
            self.data[number] = self.seen.pop(number)

    def states(self, root: int) -> Iterator[Tree]:
        """Every tree that may be found after the power comes back."""
        folders = [(folder, change) for folder, changes in self.changes.items() for change in range(len(changes))]
        contents = [(number, _remains(self.data.get(number, b""), seen)) for number, seen in self.seen.items()]
        choices: list[Any] = [(False, True)] * len(folders) + [variants for _, variants in contents]
        for chosen in _combinations(choices):
            arrived = {place for place, yes in zip(folders, chosen, strict=False) if yes}
            data = dict(zip((number for number, _ in contents), chosen[len(folders) :], strict=True))
            yield self._tree(root, arrived, data)

    def _tree(self, number: int, arrived: set[tuple[int, int]], data: dict[int, bytes]) -> Tree:
        names = dict(self.names.get(number, {}))
        for position, (name, target) in enumerate(self.changes.get(number, [])):
            if (number, position) in arrived:
                _apply(names, name, target)
        return {
            name: self._tree(target, arrived, data) if target in self.names else data.get(target, self.data.get(target))
            for name, target in names.items()
        }


def _apply(names: dict[str, int], name: str, target: int | None) -> None:
    if target is None:
        names.pop(name, None)
    else:
        names[name] = target


def _remains(sure: bytes, seen: bytes) -> tuple[bytes, ...]:
    garbage = random.Random(7).randbytes(len(seen))
    return tuple(dict.fromkeys((sure, seen, seen[: len(seen) // 2], bytes(len(seen)), garbage, b"")))


def _combinations(choices: list[Any]) -> Iterator[tuple[Any, ...]]:
    total = 1
    for choice in choices:
        total *= len(choice)
    if total <= _MOST:
        yield from itertools.product(*choices)
        return
    dice = random.Random(11)
    # All and nothing first: the two states that real disks are found in most.
    yield tuple(choice[-1] for choice in choices)
    yield tuple(choice[0] for choice in choices)
    for _ in range(_MOST):
        yield tuple(dice.choice(choice) for choice in choices)


@contextmanager
def recording(disk: Disk, moment: Callable[[], None]) -> Iterator[None]:
    """Tell the disk of every change that this process makes; call `moment` after each."""
    real = {name: getattr(os, name) for name in ("open", "write", "fsync", "link", "unlink", "mkdir", "rename")}

    def folder_of(path: Any, dir_fd: int | None) -> tuple[int, str]:
        if dir_fd is not None:
            return os.fstat(dir_fd).st_ino, path
        return os.stat(os.path.dirname(path)).st_ino, os.path.basename(path)

    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd: int = real["open"](path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            number = os.fstat(fd).st_ino
            disk.data[number], disk.seen[number] = b"", b""
            disk.change(*folder_of(path, dir_fd), number)
            moment()
        return fd

    def write(fd: int, data: Any) -> int:
        count: int = real["write"](fd, data)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            number = os.fstat(fd).st_ino
            disk.seen[number] = disk.seen.get(number, disk.data.get(number, b"")) + bytes(data)[:count]
            moment()
        return count

    def fsync(fd: int) -> None:
        real["fsync"](fd)
        disk.sync(os.fstat(fd).st_ino)
        moment()

    def link(source: Any, target: Any, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool) -> None:
        real["link"](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
        disk.change(*folder_of(target, dst_dir_fd), os.stat(target, dir_fd=dst_dir_fd).st_ino)
        moment()

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        real["unlink"](path, dir_fd=dir_fd)
        disk.change(*folder_of(path, dir_fd), None)
        moment()

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real["mkdir"](path, mode, dir_fd=dir_fd)
        number = os.stat(path, dir_fd=dir_fd).st_ino
        disk.names[number] = {}
        disk.change(*folder_of(path, dir_fd), number)
        moment()

    def rename(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        real["rename"](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        disk.change(*folder_of(source, src_dir_fd), None)
        disk.change(*folder_of(target, dst_dir_fd), os.stat(target, dir_fd=dst_dir_fd).st_ino)
        moment()

    wrapped = {"open": opened, "write": write, "fsync": fsync, "link": link, "unlink": unlink, "mkdir": mkdir}
    for name, function in {**wrapped, "rename": rename}.items():
        setattr(os, name, function)
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def write_tree(path: Path, tree: Tree) -> None:
    path.mkdir()
    for name, content in tree.items():
        if isinstance(content, bytes):
            (path / name).write_bytes(content)
        else:
            write_tree(path / name, content)


def power_loss_violations(
    base: Path,
    work: Callable[[Path, Callable[[list[Address]], None]], None],
    known: Truth,
    *,
    rotten: bool = False,
) -> tuple[int, list[str]]:
    """Do `work` in `base`/live; lose power at every moment; look at every state. (states, violations)

    `work` gets the directory and a function to call with the addresses that were acknowledged so far.
    """
    live = base / "live"
    live.mkdir(exist_ok=True)
    disk = Disk()
    root = disk.read(str(live))
    acknowledged: list[Address] = []
    looked_at: set[str] = set()
    found: list[str] = []
    states = 0

    def moment() -> None:
        nonlocal states
        for tree in disk.states(root):
            states += 1
            # What lies in tmp/ is invisible to readers: states that differ only there are one state.
            shape = repr((_visible(tree), acknowledged))
            if shape not in looked_at:
                looked_at.add(shape)
                pending.append((tree, list(acknowledged)))

    pending: list[tuple[Tree, list[Address]]] = []
    with recording(disk, moment):
        work(live, acknowledged.extend)
        moment()
    for number, (tree, kept) in enumerate(pending):
        place = base / f"state-{number}"
        write_tree(place, tree)
        found += store_violations(place / "store", known, kept, rotten=rotten)
    return states, found


def _visible(tree: Tree) -> Tree:
    return {
        name: _visible(content) if isinstance(content, dict) else content
        for name, content in tree.items()
        if name not in ("tmp", "quarantine")
    }


def publishing(*batches: list[tuple[Address, bytes]]) -> Callable[[Path, Callable[[list[Address]], None]], None]:
    """Publish these batches, one process after another."""

    def work(place: Path, acknowledge: Callable[[list[Address]], None]) -> None:
        for batch in batches:
            store = DirectoryStore(str(place / "store"), trust_everybody)
            store.publish(batch)
            acknowledge([address for address, _ in batch])
            store.close()

    return work
