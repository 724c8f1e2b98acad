"""How a worker comes to life: a fork of the collected session, or a new interpreter where a fork is not safe."""

import fcntl
import gc
import mmap
import os
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ondol.fleet import wire
from ondol.fleet.board import SIZE, Board, Given
from ondol.fleet.starts import AsWorker, Place, Session, as_environment
from ondol.host import own_python, proctree


@dataclass
class Started:
    """A process that will say hello."""

    pid: int
    channel: wire.Channel
    #: An unlinked file that receives stack dumps; ours to read after its death.
    dump: int
    #: What it tells us without a message, and how it is handed work while it is busy.
    board: Board
    lane: wire.AheadPipe


class Launcher(Protocol):
    """Starts a worker at a place; `inherited` are descriptors of ours that it must not keep."""

    def start(self, place: Place, inherited: Iterable[int]) -> Started: ...


def _dump_file() -> int:
    fd = os.memfd_create("ondol-dump", os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


class Reborn(BaseException):
    """Raised in a forked worker through everything that the agent was about: how deep the stack is, tests can see."""

    def __init__(self, become_worker: Callable[[], None]) -> None:
        super().__init__()
        self.become_worker = become_worker


class ForkLauncher:
    """Milliseconds: everything imported and collected is there already, unless the device is of another model."""

    def __init__(self, become_worker: Callable[[Given], None], session: Callable[[], Session]) -> None:
        """Who goes on as a worker never returns."""
        self._become_worker, self._session = become_worker, session
        self._collects_garbage = gc.isenabled()

    def start(self, place: Place, inherited: Iterable[int]) -> Started:
        if place.collects:
            return SpawnLauncher(self._session()).start(place, inherited)
        ours, theirs = wire.pair()
        token = wire.new_token()
        dump = _dump_file()
        board, lane = Board(), wire.AheadPipe.open(token)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            proctree.die_with_parent(parent)
            ours.close()
            for fd in (*inherited, lane.writing):
                os.close(fd)
            lane = wire.AheadPipe(token, wire.move_up(lane.reading))
            channel = wire.Channel(socket.socket(fileno=wire.move_up(theirs.detach())), token)
            if self._collects_garbage:
                gc.enable()  # the agent does without
            given = Given(place, channel, lane, board, wire.move_up(dump))
            raise Reborn(partial(self._become_worker, given))
        theirs.close()
        return Started(pid, wire.Channel(ours, token), dump, board, lane)


class SpawnLauncher:
    """Seconds: a new interpreter, which collects the files of the items that it is sent, or everything as a spare."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def start(self, place: Place, inherited: Iterable[int]) -> Started:  # noqa: ARG002 - exec closes them
        ours, theirs = wire.pair()
        token = wire.new_token()
        dump = _dump_file()
        page = os.memfd_create("ondol-board", os.MFD_CLOEXEC)
        os.ftruncate(page, SIZE)
        lane = wire.AheadPipe.open(token)
        given = (theirs.fileno(), dump, page, lane.reading)
        start = AsWorker(*given, token.decode(), place, os.getpid(), self.session)
        # While it is configured it has the run's own TMPDIR: conftests that know xdist meet each other there.
        environment = {**os.environ, **place.env, **as_environment(start)}
        process = subprocess.Popen(
            own_python.python("pytest", *self.session.arguments),
            cwd=self.session.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=given,
        )
        theirs.close()
        process.returncode = 0  # the agent waits for it by its pid; Popen must not
        board = Board(mmap.mmap(page, SIZE))
        os.close(page)
        return Started(process.pid, wire.Channel(ours, token), dump, board, lane)
