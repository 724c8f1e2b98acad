"""Which store a job uses: the configured one, or the user's own."""

from __future__ import annotations

import os

from ondol.config import Settings
from ondol.errors import UsageError
from ondol.host import identity


def location(settings: Settings) -> str:
    where = settings.store
    if where.startswith("file://"):
        where = where.removeprefix("file://")
    elif "://" in where:
        raise UsageError(
            f"store {where!r} is of a kind that this version does not speak",
            because=f"from {settings.origin('store')}",
            hint="name a directory",
        )
    return os.path.abspath(where) if where else default()


def default() -> str:
    return os.path.join(identity.user_cache_dir(), "ondol", "store")
