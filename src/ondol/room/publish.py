"""Publishes what a job made (or what an adopted cache holds), in several processes when there is much of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ondol.errors import EntryRefused, EntryUntrusted, PackError, StoreError
from ondol.host import bounded
from ondol.room import harvest
from ondol.store import pack
from ondol.store.api import Backend, Stored
from ondol.store.entry import Address
from ondol.tools.api import CacheDir, Found, Tool

#: (statement) → public key and signature
Sign = Callable[[bytes], bytes]


class PublishResult(NamedTuple):
    published: int = 0
    published_bytes: int = 0
    already_there: int = 0
    #: (kind, place, why)
    refused: tuple[tuple[str, str, str], ...] = ()
    #: The store's refusal, if there was one: (what, because, hint); what came before it is published.
    trouble: tuple[str, str, str] | None = None
    #: Fingerprint and key of all that is in the store now, by us or by others.
    there: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: PublishResult) -> PublishResult:  # type: ignore[override]
        return PublishResult(
            self.published + other.published,
            self.published_bytes + other.published_bytes,
            self.already_there + other.already_there,
            self.refused + other.refused,
            self.trouble or other.trouble,
            self.there + other.there,
        )


class Publisher:
    """Offers entries of one cache to a store. Raises `StoreError` if it takes none of this job's."""

    def __init__(
        self,
        store: Backend,
        tool: Tool,
        cache: CacheDir,
        scope: str,
        provenance: dict[str, Any],
        sign: Sign | None = None,
    ) -> None:
        store.check_writer(scope, sign is not None)
        self.store, self._tool, self._cache, self._scope = store, tool, cache, scope
        self._provenance, self._sign = provenance, sign
        self._there: dict[tuple[str, str], list[Stored]] = {}
        for stored in store.index(tool.row.name, [scope]):
            self._there.setdefault((stored.address.fingerprint, stored.address.key), []).append(stored)

    def offer(self, found: Sequence[Found], unchanged_since: float = math.inf) -> PublishResult:
        """Some entries, few enough to hold in memory. What is not whole is refused; see `harvest.read_entry`."""
        packs: list[tuple[Address, bytes]] = []
        known: list[tuple[str, str]] = []
        refused: list[tuple[str, str, str]] = []
        for item in found:
            if self._any_good((item.fingerprint, item.key)):
                known.append((item.fingerprint, item.key))
                continue
            try:
                packs.append(self._packed(item, unchanged_since))
            except EntryRefused as error:
                refused.append((error.because or "torn", item.place, error.what))
            except PackError as error:
                refused.append(("unfit", item.place, error.line()))
            except MemoryError:
                refused.append(("unfit", item.place, "packing it takes more memory than Ondol allows itself"))
        try:
            outcomes = self.store.publish(packs) if packs else []
        except StoreError as error:
            trouble = (error.what, error.because, error.hint)
            return PublishResult(0, 0, len(known), tuple(refused), trouble, tuple(known))
        new = {outcome.address for outcome in outcomes if outcome.new}
        size = sum(len(data) for address, data in packs if address in new)
        there = (*known, *((address.fingerprint, address.key) for address, _ in packs))
        return PublishResult(len(new), size, len(there) - len(new), tuple(refused), None, there)

    def _packed(self, item: Found, unchanged_since: float) -> tuple[Address, bytes]:
        trusts = partial(self.store.trusts, scope=self._scope)
        entry = harvest.read_entry(
            self._tool, self._cache, item, self._scope, self._provenance, trusts, unchanged_since
        )
        return entry.address, pack.encode(entry, self._sign)

    def _any_good(self, key: tuple[str, str]) -> bool:
        """Whether a pack there can be used: a bad one in a lane that we may not mend must not keep its key cold."""
        store = self.store
        for stored in self._there.get(key, []):
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


def publish(
    publisher: Publisher, found: Sequence[Found], progress: Callable[[int, int], None], seconds: float
) -> PublishResult:
    """Offer all of these, in several processes if that is worth it."""
    if len(found) >= bounded.WORTH_FORKING:
        publisher.store.before_forking()
    processes = os.cpu_count() or 1
    parts = bounded.in_pieces(found, publisher.offer, processes, seconds, progress, lambda part: bool(part.trouble))
    return sum(parts, PublishResult())
