"""Who holds a lock: a few lines that the holder leaves for those who wait. Pure.

Others may read them and, in a shared directory, write them: they are shown, after a check that the process they name is
not dead, and never believed for anything else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ondol import words
from ondol.host.process import Owner
from ondol.words import is_number

_LONGEST = 200
#: `https://user:token@index/`: a note is readable by everybody who can reach the cache.
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")
_OWNER_LINES = 4


class Holder(NamedTuple):
    owner: Owner
    host: str
    #: Seconds since the epoch, on the holder's clock.
    since: float
    command: str
    #: The CI job it belongs to; empty outside CI.
    job: str = ""

    def encode(self) -> bytes:
        rest = [self.host, f"{self.since:.0f}", self.command, self.job, ""]
        return self.owner.encode() + "\n".join(" ".join(one.split()) for one in rest).encode()

    @classmethod
    def decode(cls, data: bytes) -> Holder | None:
        """The holder that wrote this, or None for bytes that say nothing."""
        owner = Owner.decode(data)
        lines = data.decode("utf-8", "replace").split("\n")[_OWNER_LINES:]
        if owner is None or len(lines) < 4 or not is_number(lines[1]):
            return None
        return cls(owner, lines[0], float(lines[1]), lines[2], lines[3])

    def text(self, now: float) -> str:
        """`pid 4242 on login05 for 42 s: uv pip install toolchain [job gpu-acc]`"""
        job = f" [{self.job}]" if self.job else ""
        lasted = words.seconds(max(0.0, now - self.since))
        return words.printable(f"pid {self.owner.pid} on {self.host} for {lasted}: {self.command}{job}")


def command_line(argv: list[str]) -> str:
    """The command for a note: short, and without the passwords that URLs may hold."""
    text = _SECRET.sub("…@", " ".join(argv))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
