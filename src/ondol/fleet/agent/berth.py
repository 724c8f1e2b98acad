"""What an agent knows of one slot."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ondol.fleet.agent.keeper import Keeper
from ondol.fleet.messages import RunItem


@dataclass
class Berth:
    """A slot on this host: at most one worker, perhaps a second one ready to take over, and what was handed to it."""

    name: str
    env: dict[str, str]
    devices: list[dict[str, Any]]
    worker: Keeper | None = None
    standby: Keeper | None = None
    queue: deque[RunItem] = field(default_factory=deque)
    generation: int = 0
    retiring: bool = False
    lost: bool = False
    #: A start failed here; the controller decides whether it is worth another one.
    held: bool = False
