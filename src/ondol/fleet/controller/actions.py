"""What those who decide for the controller tell it to do: a closed set. Most are things that exist anyway: a message to
be sent, an event to be recorded, an ending that no agent was left to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ondol.fleet import journal, model
from ondol.fleet.messages import Command, Ended
from ondol.fleet.verdict import Final


#: The verdict of a work that will not run, or not again.
class Settle(NamedTuple):
    work: int
    final: Final


#: Who watched these slots is gone: what was handed to them and has not begun goes elsewhere.
class Vacate(NamedTuple):
    slots: Sequence[str]


#: Hand out nothing more.
class Stop(NamedTuple):
    reason: str


#: Start another agent.
class NewAgent(NamedTuple):
    pass


Action = model.Action | Command | journal.Event | Ended | Settle | Vacate | Stop | NewAgent
