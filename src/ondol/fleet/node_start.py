"""What a node program and the pytest that it starts must agree on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

#: What the controller writes first, as a plain line; a node program understands this number only.
FORMAT = 1
#: In the environment of a pytest that is to become a node's agent.
NODE_ENV = "ONDOL_NODE_START"


@dataclass(frozen=True)
class Start:
    """How a node's pytest begins."""

    #: Descriptor and token of the channel to the node program.
    channel: int
    token: str
    node: str
    tmpdir: str
    #: The node program.
    parent: int

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def take(cls) -> Start | None:
        """Out of the environment: nothing that the tests start may take itself for an agent."""
        text = os.environ.pop(NODE_ENV, None)
        return None if text is None else cls(**json.loads(text))
