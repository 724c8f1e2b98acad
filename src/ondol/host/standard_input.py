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

#: (what it is, and what can be seen of it without reading from it)
State = tuple[str, int, bool]


def look() -> State:
    waiting = array.array("i", [0])
    try:
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode):
            return "file", os.lseek(0, 0, os.SEEK_CUR), False
        if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
            return "device", 0, False  # a terminal, /dev/null
        fcntl.ioctl(0, termios.FIONREAD, waiting)
    except OSError:
        return "closed", 0, False  # or a socket that nobody can read from
    poller = select.poll()
    poller.register(0, select.POLLIN)
    return "pipe", waiting[0], any(events & select.POLLHUP for _, events in poller.poll(0))


def rewind(before: State) -> bool:
    """Make it what it was when `before` was taken. False if that is impossible."""
    kind, offset, _ = before
    if kind == "file":
        os.lseek(0, offset, os.SEEK_SET)
        return True
    # A pipe in which as much waits as before, and whose writer has not gone meanwhile: nobody has read from it.
    return look() == before
