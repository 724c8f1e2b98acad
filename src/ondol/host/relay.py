"""Passing a command's output through, unchanged and at once, while keeping its end.

A helper process copies: the command's output never waits for what we are doing, and goes on when we are killed. What
the command leaves behind in the background keeps its output too: the helper stays for as long as anybody can write.

Standard output and standard error that are the same file get one channel, so that their order is kept. Where the user
has a terminal the command gets one (a pty of the same size), so that it still draws in colours; else it is a pipe.
"""

import fcntl
import os
import select
import signal
import termios
from contextlib import suppress

from ondol.host import files

#: After the command's end: how long the channel must be silent before we believe that nothing more of its own comes.
#: Only waited for if something in the background still has the channel open.
_SILENCE_MS = 200
_CHUNK = 1 << 16
_HIGHEST_DESCRIPTOR = 1 << 16


class Relay:
    """One run of a command: `streams` for its start, `finish` after its end."""

    def __init__(self, keep: int) -> None:
        """`keep`: how many bytes of the output's end `finish` returns."""
        self._keep = keep
        #: standard descriptor → what the command uses in its place
        self.streams: dict[int, int] = {}
        #: (where output comes from, where it goes to)
        channels = self._open_channels()
        self._ended, self._result = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _copy_and_exit(channels, self._ended[0], self._result[1], keep)
        for fd in (*(source for source, _ in channels), self._ended[0], self._result[1]):
            os.close(fd)

    def _open_channels(self) -> list[tuple[int, int]]:
        channels = []
        for number in (1, 2):
            if not _is_open(number):
                continue
            if number == 2 and 1 in self.streams and os.path.sameopenfile(1, 2):
                self.streams[2] = self.streams[1]
                continue
            source, self.streams[number] = _pty(number) if os.isatty(number) else os.pipe()
            channels.append((source, number))
        return channels

    def finish(self) -> bytes:
        """The end of what the command wrote; all of it has been passed on when this returns."""
        for fd in {*self.streams.values(), self._ended[1]}:
            os.close(fd)
        parts = []
        while data := os.read(self._result[0], _CHUNK):
            parts.append(data)
        os.close(self._result[0])
        os.waitpid(self._pid, os.WNOHANG)  # if it stays for something in the background, that is not ours to wait for
        return b"".join(parts)


def _is_open(number: int) -> bool:
    """Whether the command would have this descriptor: one that was closed is only held by us, close-on-exec."""
    try:
        return not fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    except OSError:
        return False


def _pty(like: int) -> tuple[int, int]:
    """(ours, the command's): a terminal of the same size and kind that changes no byte on the way."""
    ours, theirs = os.openpty()
    with suppress(termios.error):  # a terminal that is hanging up
        mode = termios.tcgetattr(like)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
    _copy_size(like, ours)
    return ours, theirs


def _copy_size(source: int, target: int) -> None:
    with suppress(OSError):  # a terminal without a size
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8))


def _copy_sizes(terminals: list[tuple[int, int]]) -> None:
    for source, target in terminals:
        _copy_size(target, source)


def _copy_and_exit(channels: list[tuple[int, int]], ended: int, result: int, keep: int) -> None:
    try:
        # Ctrl-C is for the command; its last words must still get through.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        _close_all_but([ended, result, *(source for source, _ in channels)])
        terminals = [(source, target) for source, target in channels if os.isatty(target)]
        signal.signal(signal.SIGWINCH, lambda *_: _copy_sizes(terminals))
        _copy(dict(channels), ended, result, keep)
    finally:
        os._exit(0)


def _close_all_but(needed: list[int]) -> None:
    """A lock that the helper inherits would last as long as the helper, not as long as the command."""
    before = 2  # the standard descriptors are where the output goes
    for fd in sorted([*needed, _HIGHEST_DESCRIPTOR]):
        if fd > before:
            os.closerange(before + 1, fd)
            before = fd


def _copy(channels: dict[int, int], ended: int, result: int, keep: int) -> None:
    """Until nobody can write any more; the tail is handed over once the command has ended and said its last."""
    tail = bytearray()
    is_over = False
    poller = select.poll()
    for fd in (*channels, ended):
        poller.register(fd, select.POLLIN)
    while channels or result >= 0:
        concluding = is_over and result >= 0
        ready = poller.poll(_SILENCE_MS if concluding else None) if channels or not concluding else []
        if not ready:
            result = _hand_over(result, tail[-keep:])
        for fd, _ in ready:
            if fd == ended:
                is_over = True
                poller.unregister(ended)
            elif not _pass_on(fd, channels[fd], tail, keep):
                poller.unregister(fd)
                os.close(fd)
                del channels[fd]


def _hand_over(result: int, tail: bytearray) -> int:
    with suppress(OSError):  # whoever wanted it is gone
        files.write_all(result, bytes(tail))
    files.close_quietly(result)
    return -1


def _pass_on(source: int, target: int, tail: bytearray, keep: int) -> bool:
    """One piece. False if the channel is over: at its end, or because nobody reads what we write any more."""
    try:
        data = os.read(source, _CHUNK)
    except OSError:  # EIO: the last one has closed the terminal
        return False
    tail += data
    if len(tail) > 2 * keep:
        del tail[:-keep]
    try:
        _write(target, data)
    except OSError:
        return False  # closing our end tells the command what it would have been told itself
    return bool(data)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # somebody set our output to non-blocking
            poller = select.poll()
            poller.register(target, select.POLLOUT)
            poller.poll()
