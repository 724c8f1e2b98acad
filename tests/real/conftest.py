"""Real tools share the fixtures of `warming`."""

from __future__ import annotations

from real.warming import tools

__all__ = ["tools"]
