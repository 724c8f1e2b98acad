"""What the run wing asks of whoever knows caches. The two wings meet in `jobs`, which brings the answers."""

from __future__ import annotations

from typing import Protocol


class Caches(Protocol):
    """Tells a cache's fault from a test's, and mends it before the item is tried again."""

    def fault(self, text: str) -> str:
        """The cache fault that the text of a failure shows, in one sentence; empty if it shows none.

        Sure or silent: what is called a cache's fault is no longer the test's.
        """

    def heal(self, text: str) -> str:
        """Mend what `fault` found, while other workers use the cache; what was done, or empty if nothing could be."""


class NoCaches:
    """Where nobody knows: every failure is the item's own."""

    def fault(self, text: str) -> str:
        del text
        return ""

    def heal(self, text: str) -> str:
        del text
        return ""
