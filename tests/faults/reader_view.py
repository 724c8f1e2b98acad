"""What a fresh reader sees in a store, compared with what was ever published: the checks behind every fault test.

Each check returns the violations that it found, as sentences. The sabotage suite calls the same checks on broken
code and demands that they find something.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from handmade import trust_everybody
from ondol.errors import PackError, StoreMissing
from ondol.store import check, pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address, Entry

#: (name, executable, content) of each file of an entry.
Contents = tuple[tuple[str, bool, bytes], ...]
#: All that producers ever published under an address.
Truth = Mapping[Address, Collection[Contents]]


def contents(entry: Entry) -> Contents:
    return tuple((file.name, file.executable, bytes(file.data)) for file in entry.files)


def truth(entries: Iterable[Entry]) -> dict[Address, list[Contents]]:
    known: dict[Address, list[Contents]] = {}
    for entry in entries:
        known.setdefault(entry.address, []).append(contents(entry))
    return known


def read_all(store: DirectoryStore) -> tuple[dict[Address, set[Contents]], list[str]]:
    """What a job would read (everything that decodes), and what a job would refuse."""
    seen: dict[Address, set[Contents]] = {}
    refused: list[str] = []
    for stored in store.everything():
        try:
            entry = pack.decode(store.fetch(stored), stored.address)
        except PackError as error:
            refused.append(f"{stored.address.key}: {error.line()}")
        except OSError:
            continue
        else:
            seen.setdefault(stored.address, set()).add(contents(entry))
    return seen, refused


def store_violations(
    path: Path | str, known: Truth, kept: Collection[Address] = (), *, rotten: bool = False
) -> list[str]:
    """Bad bytes that a reader would accept, acknowledged entries that are gone, and packs that do not verify.

    `rotten`: the test itself damaged a pack, so one that does not verify is no surprise.
    """
    try:
        store = DirectoryStore(str(path), trust_everybody)
    except StoreMissing as error:
        return [f"the store is gone: {error}"] if kept else []
    try:
        seen, _ = read_all(store)
        found = [
            f"{address.key} reads as something that nobody published"
            for address, variants in seen.items()
            if not variants <= set(known.get(address, ()))
        ]
        found += [f"{address.key} was acknowledged and is gone" for address in kept if address not in seen]
        if not rotten:
            verified = check.verify(store, lambda _done, _total: None, keep=True)
            found += [f"{finding.kind}: {finding.why}" for finding in verified.findings]
        return found
    finally:
        store.close()


def room_violations(cache: Path, expected: Mapping[str, Mapping[str, bytes]], witness: str) -> list[str]:
    """Entries in a room's cache that look finished (their witness is there) and are not exactly what they should be."""
    found = []
    for folder in sorted(cache.iterdir()) if cache.is_dir() else []:
        names = set(os.listdir(folder))
        if witness not in names:
            continue
        for name, data in expected[folder.name].items():
            if name not in names:
                found.append(f"{folder.name} looks finished and has no {name}")
            elif (folder / name).read_bytes() != data:
                found.append(f"{folder.name}/{name} is not what was published")
    return found
