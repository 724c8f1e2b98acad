"""Where past runs are kept and whose are believed: the same owners whose entries are read from the store."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from ondol.config import Settings
from ondol.errors import OndolError
from ondol.fleet import kept
from ondol.host import bounded, identity

#: Seconds for a shared directory to take one file.
_PATIENCE = 30.0


def settings() -> Settings:
    """Without a command line: the variables and the files."""
    from ondol.trust.settings import load  # most runs need none of the cache wing in this process

    return load({}, os.environ, identity.working_directory())


def believed(found: Settings) -> kept.Believes:
    """With a store, its writers too; one that cannot be opened vouches for nobody."""
    from ondol.jobs.open_store import open_store
    from ondol.trust import owners

    if found.store:
        try:
            return open_store(found).trusts
        except OndolError:
            pass
    return partial(owners.believes, owners.Reader(os.geteuid(), frozenset(found.trust), identity.overflow_uid()))


def keep(journal: Path, where: str) -> str:
    """Returns what is wrong, in words. A directory that does not answer costs some patience and no run."""
    if not journal.exists():
        return ""
    if not where:
        return kept.keep(journal)
    try:
        return str(bounded.call(lambda _report: kept.keep(journal, where), _PATIENCE))
    except OndolError as error:
        return f"this run is not in the history in {where}: {error} (fix: --history DIR, one that answers)"
