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
    """Looks after every file whether it touched a device in spite of us, and lets the helper go at the end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stand_ins = StandIns(client)
        self._stand_ins.install()
        self._first = ""
        self._before = "a conftest file or a plugin"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._look(report.nodeid or self._before)

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.Session):
            self._look(self._before)

    def _look(self, suspect: str) -> None:
        if not self._first and clean.open_devices():
            self._first = suspect

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._client.close()
        session.config.stash[clean.TOUCHED] = self._blame(str(session.config.rootpath))

    def pytest_unconfigure(self) -> None:
        self._client.close()

    def _blame(self, root: str) -> str:
        stack: list[traceback.FrameSummary] = self._stand_ins.touched
        line = threads.culprit(stack, root, (f"{os.sep}torch{os.sep}",))
        return line or self._first or self._client.broken
