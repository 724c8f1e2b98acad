"""Stores of small made-up entries, for benches where the number of entries matters and not their contents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from bench.raw_tree import key_of
from ondol.config import merge
from ondol.jobs.open_store import open_store
from ondol.store import marker, pack
from ondol.store.entry import Address, Entry, File


def make_store(path: Path) -> None:
    """An empty store."""
    marker.create(str(path), marker.Writers(), shared=False)


def add_entries(path: Path, start: int, stop: int) -> None:
    """Entries number `start` to `stop`, published as any job's are; but not synced: only their number matters."""
    store = open_store(merge({"store": str(path)}, {}))
    real = os.fsync
    os.fsync = lambda fd: None  # noqa: ARG005
    try:
        store.publish((address, data) for address, data in _packs(start, stop))
    finally:
        os.fsync = real
        store.close()


def _packs(start: int, stop: int) -> Iterator[tuple[Address, bytes]]:
    for number in range(start, stop):
        address = Address("main", "triton", "any", key_of(number))
        yield address, pack_of(address, number)


def pack_of(address: Address, number: int) -> bytes:
    """An entry that Triton would take, and that is unlike any other number's."""
    children = {"k.cubin": b"cubin %d " % number * 40, "k.ttir": b"module {}", "k.json": b'{"number": %d}' % number}
    group = json.dumps({"child_paths": {child: child for child in children}}).encode()
    contents = {**children, "__grp__k.json": group}
    files = tuple(File(name, False, data) for name, data in contents.items())
    return pack.encode(Entry(address, files, f"kernel_{number}", 1.0, {}))
