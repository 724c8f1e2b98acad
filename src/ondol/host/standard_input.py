"""Whether a command can be run once more with the same standard input.

`cat requirements.txt | … uv pip install -r -` cannot: the second run would find an empty pipe, install nothing, and
succeed. A file can be read again from where it was; a terminal, and what nobody has read from, need nothing.
"""

import array
import fcntl
import os
import select
import stat
import termios
from typing import NamedTuple


class InputState(NamedTuple):
    """What can be seen of a descriptor without reading from it."""

    kind: str
    offset: int = 0
    waiting: int = 0
    hung_up: bool = False


def look() -> InputState:
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return InputState("closed")
    if stat.S_ISREG(mode):
        return InputState("file", offset=os.lseek(0, 0, os.SEEK_CUR))
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        return InputState("device")  # a terminal, /dev/null
    waiting = array.array("i", [0])
    poller = select.poll()
    poller.register(0, select.POLLIN)
    try:
        fcntl.ioctl(0, termios.FIONREAD, waiting)
        events = dict(poller.poll(0)).get(0, 0)
    except OSError:
        return InputState("unknown", offset=-1)
    return InputState("pipe", waiting=waiting[0], hung_up=bool(events & select.POLLHUP))


def rewind(before: InputState) -> bool:
    """Make it what it was when `before` was taken. False if that is impossible."""
    if before.kind == "file":
        try:
            os.lseek(0, before.offset, os.SEEK_SET)
        except OSError:
            return False
        return True
    # A pipe in which as much waits as before, and whose writer has not gone meanwhile: nobody has read from it.
    return before.kind != "unknown" and look() == before
