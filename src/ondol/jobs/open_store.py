"""Opens the store that the settings name, with this user's rule of trust."""

from __future__ import annotations

import os
from collections.abc import Callable

from ondol.config import Settings
from ondol.errors import StoreError, StoreMissing
from ondol.host import identity
from ondol.jobs.store_location import location
from ondol.store import marker
from ondol.store.directory import DirectoryStore
from ondol.trust import owners
from ondol.trust.membership import is_member


def open_store(settings: Settings, path: str = "") -> DirectoryStore:
    """Open the store; the user's own default store is made on first use. Raises `StoreError`."""
    where = path or location(settings)
    try:
        return DirectoryStore(where, judge(settings.trust))
    except StoreMissing:
        if path or settings.store:
            raise
    _create_default(where)
    return DirectoryStore(where, judge(settings.trust))


def _create_default(where: str) -> None:
    try:
        marker.create(where, marker.Writers(), shared=False)
    except OSError as error:
        raise StoreError(
            f"cannot make the default store at {where}",
            because=error.strerror or str(error),
            hint="name a directory that you can write with --store",
        )


def judge(listed: list[int]) -> Callable[[marker.Marker], Callable[[int], bool]]:
    reader = owners.Reader(os.geteuid(), frozenset(listed), identity.overflow_uid())

    def for_store(found: marker.Marker) -> Callable[[int], bool]:
        writers = found.writers
        return owners.trusted_owner(reader, found.owner, writers.uids, writers.groups, writers.anyone, is_member)

    return for_store
