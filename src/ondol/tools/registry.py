"""Every tool, by name. Explicit: a reader sees at once what is supported."""

from __future__ import annotations

from ondol.errors import UsageError
from ondol.tools.api import Tool
from ondol.tools.triton import Triton

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (Triton(),)}


def choose(names: list[str]) -> list[Tool]:
    """The tools of these names, in order. Raises `UsageError` for one we do not know."""
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise UsageError(f"there is no tool {unknown[0]!r}", hint=f"one or more of: {', '.join(TOOLS)}")
    return [TOOLS[name] for name in names]
