"""Which store a job uses: the configured one, or the user's own."""

from __future__ import annotations

import os

from ondol.config import Settings
from ondol.host import identity


def location(settings: Settings) -> str:
    return os.path.abspath(settings.store) if settings.store else default()


def default() -> str:
    return os.path.join(identity.user_cache_dir(), "ondol", "store")
