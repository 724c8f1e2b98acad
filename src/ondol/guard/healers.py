"""Every family of caches that can be healed, by the name that signatures use for it."""

from __future__ import annotations

from ondol.guard.healer import Healer
from ondol.guard.pip import Pip
from ondol.guard.tool_cache import ToolCache
from ondol.guard.uv import Uv
from ondol.tools import table

#: The tools whose files we can tell whole from torn; the others have a protocol of their own.
_UNDERSTOOD = [ToolCache(row) for row in table.ROWS if row.sharing != "E"]
_ALL: list[Healer] = [Uv(), Pip(), *_UNDERSTOOD]
HEALERS: dict[str, Healer] = {healer.name: healer for healer in _ALL}
