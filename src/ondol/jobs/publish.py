"""Publishes what a job made (or what an adopted cache holds), in several processes when there is much of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ondol import __version__
from ondol.errors import EntryRefused, EntryUntrusted, PackError, StoreError
from ondol.host import bounded, identity
from ondol.jobs.open_store import check_may_write
from ondol.light import Any, Record
from ondol.room import harvest
from ondol.store import pack
from ondol.store.api import Stored
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address
from ondol.tools.api import CacheDir, Found, Tool
from ondol.trust import ci

#: (statement) → public key and signature
Sign = Callable[[bytes], bytes]
PIECE = 32
_WORTH_FORKING = 64


class Outcome(Record):
    published: int = 0
    published_bytes: int = 0
    already_there: int = 0
    #: (kind, place, why)
    refused: tuple[tuple[str, str, str], ...] = ()
    #: The store's refusal, if there was one: (what, because, hint); what came before it is published.
    trouble: tuple[str, str, str] | None = None

    def __add__(self, other: Outcome) -> Outcome:  # type: ignore[override]
        return Outcome(
            self.published + other.published,
            self.published_bytes + other.published_bytes,
            self.already_there + other.already_there,
            self.refused + other.refused,
            self.trouble or other.trouble,
        )


def publish(
    store: DirectoryStore,
    tool: Tool,
    cache: CacheDir,
    found: Sequence[Found],
    scope: str,
    provenance: dict[str, Any],
    progress: Callable[[int, int], None],
    seconds: float,
    sign: Sign | None = None,
) -> Outcome:
    """Offer these entries to the store. Raises `StoreError` only if nothing at all could be offered."""
    check_may_write(store, scope, signs=sign is not None)
    there: dict[tuple[str, str], list[Stored]] = {}
    for stored in store.index(tool.row.name, [scope]):
        there.setdefault((stored.address.fingerprint, stored.address.key), []).append(stored)
    missing = [item for item in found if not _any_good(store, there.get((item.fingerprint, item.key), []))]
    total = Outcome(already_there=len(found) - len(missing))
    if not missing:
        return total
    store.my_lane()  # made before forking, so that all of us write in one
    processes = os.cpu_count() or 1 if len(missing) >= _WORTH_FORKING else 1
    pieces = [missing[start : start + PIECE] for start in range(0, len(missing), PIECE)]

    def packed(item: Found) -> tuple[Address, bytes]:
        entry = harvest.read_entry(tool, cache, item, scope, provenance, partial(store.trusts, scope=scope))
        return entry.address, pack.encode(entry, sign)

    def work(piece: list[Found]) -> Any:
        return tuple(_publish_piece(store, piece, packed))

    def told(done: int, _: int) -> None:
        progress(min(done * PIECE, len(missing)), len(missing))

    for part in bounded.in_parallel(pieces, work, processes, seconds, told, enough=lambda part: part[-1] is not None):
        total += Outcome(*part)
    return total


def _any_good(store: DirectoryStore, copies: Sequence[Stored]) -> bool:
    """Whether one of these packs can be used: a bad one in a lane that we may not mend must not keep its key cold."""
    for stored in copies:
        try:
            store.vet(stored, pack.inspect(store.fetch(stored), stored.address))
        except EntryUntrusted:
            if stored.owner == os.geteuid():
                store.set_aside(stored)  # in our own lane it would stand where the new one belongs
        except (OSError, PackError):
            continue
        else:
            return True
    return False


def _publish_piece(
    store: DirectoryStore, piece: list[Found], packed: Callable[[Found], tuple[Address, bytes]]
) -> Outcome:
    packs = []
    refused: list[tuple[str, str, str]] = []
    for found in piece:
        try:
            packs.append(packed(found))
        except EntryRefused as error:
            refused.append((error.because or "torn", found.place, error.what))
        except PackError as error:
            refused.append(("unfit", found.place, error.line()))
        except MemoryError:
            refused.append(("unfit", found.place, "packing it needs more memory than it may cost"))
    try:
        outcomes = store.publish(packs)
    except StoreError as error:
        return Outcome(refused=tuple(refused), trouble=(error.what, error.because, error.hint))
    new = {outcome.address for outcome in outcomes if outcome.new}
    size = sum(len(data) for address, data in packs if address in new)
    return Outcome(len(new), size, len(outcomes) - len(new), tuple(refused))


def provenance(env: Mapping[str, str], directory: str) -> dict[str, Any]:
    """Who, where, when and from which commit: what makes a later revocation possible."""
    known: dict[str, Any] = {**ci.provenance(env)}
    if "commit" not in known:
        commit = _git_commit(directory)
        if commit:
            known["commit"] = commit
    known |= {"host": identity.hostname(), "uid": os.geteuid(), "time": int(time.time()), "ondol": __version__}
    return known


def _git_commit(directory: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(
            ["git", "-C", directory, "rev-parse", "HEAD"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
