"""Who holds a lock: a few lines that the holder leaves for those who wait. Pure.

Others may read them and, in a shared directory, write them: they are shown, after a check that the process they name is
not dead, and never believed for anything else.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ondol import units
from ondol.foreign_text import is_number, printable
from ondol.host.process import Owner

_LONGEST = 200
#: `https://user:token@index/`: a note is readable by everybody who can reach the cache.
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")


class Holder(NamedTuple):
    owner: Owner
    host: str
    #: Seconds since the epoch, on the holder's clock.
    since: float
    command: str
    #: The CI job it belongs to; empty outside CI.
    job: str = ""

    def encode(self) -> bytes:
        lines = [self.owner.encode().decode(), self.host, f"{self.since:.0f}", self.command, self.job]
        return "".join(" ".join(line.split()) + "\n" for line in lines).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Holder | None":
        """The holder that wrote this, or None for bytes that say nothing."""
        lines = data.decode("utf-8", "replace").split("\n")
        owner = Owner.decode(lines[0].encode())
        if owner is None or len(lines) < 5 or not is_number(lines[2]):
            return None
        return cls(owner, lines[1], float(lines[2]), lines[3], lines[4])

    def text(self, now: float) -> str:
        """`pid 4242 on login05 for 42 s: uv pip install toolchain [job gpu-acc]`"""
        job = f" [{self.job}]" if self.job else ""
        lasted = units.seconds(max(0.0, now - self.since))
        return printable(f"pid {self.owner.pid} on {self.host} for {lasted}: {self.command}{job}")


def command_line(argv: Sequence[str]) -> str:
    """The command for a note: short, and without the passwords that URLs may hold."""
    text = _SECRET.sub("…@", " ".join(argv))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
