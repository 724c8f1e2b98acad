"""Device facts for one collection: begun before the first conftest, over when everything is collected."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from ondol.fleet import clean, threads
from ondol.testing.facts.client import Client, kept_file
from ondol.testing.facts.stand_ins import StandIns


def begin(choice: str) -> FactsPlugin | None:
    """`auto`: where there is a device to ask. To be called before any conftest is loaded."""
    if choice == "off" or (choice == "auto" and not clean.device_nodes()):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return FactsPlugin(Client(kept_file(Path(base) / "ondol" / "device-facts")))


class FactsPlugin:
    """Knows at the end who touched a device in spite of us, and lets the helper go."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stand_ins = StandIns(client)
        self._stand_ins.install()
        self.real_again = self._stand_ins.real_again

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._client.close()
        session.config.stash[clean.TOUCHED] = self._blame(str(session.config.rootpath))

    def pytest_unconfigure(self) -> None:
        self._client.close()

    def _blame(self, root: str) -> str:
        stack: list[traceback.FrameSummary] = self._stand_ins.touched
        line = threads.culprit(stack, root, (f"{os.sep}torch{os.sep}",))
        return line or self._client.broken
