"""Real tools share the fixtures of `warming`."""

from __future__ import annotations

from real.warming import store, tools

__all__ = ["store", "tools"]
