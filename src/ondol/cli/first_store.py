"""Offers to make the store that somebody at a terminal has named and that is not there yet."""

from __future__ import annotations

import os

from ondol.cli import output
from ondol.config import Settings
from ondol.errors import OndolError
from ondol.host import bounded
from ondol.jobs import open_store
from ondol.jobs.store_location import location
from ondol.store import marker
from ondol.trust import ci

#: A store on a dead server is looked for no longer than this; the job says so later, in its own words.
_SECONDS = 5.0
_YES = ("y", "yes")


def offer(settings: Settings) -> None:
    """Everybody else, a job on CI above all, runs cold and is told what to type."""
    if not settings.store or settings.quiet or ci.on_ci(os.environ) or not _can_ask():
        return
    path = location(settings)
    try:
        if bounded.call(lambda _report: os.path.lexists(path), _SECONDS):
            return
        if output.ask(f"ondol: no store at {path}. Make one, as `ondol store init` does? [y/N]") not in _YES:
            return
        bounded.call(lambda _report: open_store.make(path, marker.Writers(), shared=True), _SECONDS)
    except (OndolError, OSError) as error:
        output.tell(f"ondol: no store was made: {error}")
    else:
        output.tell(f"ondol: store made at {path}; to let other users publish: ondol store writers --help")


def _can_ask() -> bool:
    """Whether there is a person at both ends, and the terminal is ours: in the background, reading stops a process."""
    try:
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
