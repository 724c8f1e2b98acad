"""Real tools share the fixtures of `tool_lives`."""

from __future__ import annotations

from real.tool_lives import tools

__all__ = ["tools"]
