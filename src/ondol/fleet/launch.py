"""How a worker comes to life: a fork of the collected session, or a new interpreter where a fork is not safe."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import pytest

from ondol.fleet import wire
from ondol.fleet.options import WORKER_ENV
from ondol.fleet.worker import Place, begin_in_fork, settle_in
from ondol.host import itself


@dataclass
class Started:
    """A process that will say hello."""

    pid: int
    channel: wire.Channel
    #: An unlinked file that receives stack dumps; ours to read after its death.
    dump: int
    #: One byte that the worker writes and we read: the phase of its item.
    phase: mmap.mmap


class Launcher(Protocol):
    """Starts a worker at a place; `inherited` are descriptors of ours that it must not keep."""

    def start(self, place: Place, inherited: Iterable[int]) -> Started: ...


def _dump_file() -> int:
    fd = os.memfd_create("ondol-dump", os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


def move_up(fd: int) -> int:
    """Away from the numbers that tests like to close in ranges."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, wire.HIGH_FD)
    os.close(fd)
    return high


class ForkLauncher:
    """Milliseconds: everything imported and collected is there already."""

    def __init__(self, session: pytest.Session, base: Path | None) -> None:
        self._session = session
        self._base = base

    def start(self, place: Place, inherited: Iterable[int]) -> Started:
        ours, theirs = wire.pair()
        token = os.urandom(wire.TOKEN_BYTES)
        dump = _dump_file()
        phase = mmap.mmap(-1, mmap.PAGESIZE)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for fd in inherited:
                os.close(fd)
            high_dump = move_up(dump)
            channel = wire.Channel(socket.socket(fileno=move_up(theirs.detach())), token)
            settle_in(place, parent, high_dump)
            begin_in_fork(self._session, channel, place, self._base, phase)
        theirs.close()
        return Started(pid, wire.Channel(ours, token), dump, phase)


class SpawnLauncher:
    """Seconds: a new interpreter, which imports and collects the files of the items that it is sent."""

    def __init__(self, arguments: list[str], directory: str, prepare: Callable[[], None] | None = None) -> None:
        self._arguments = arguments
        self._directory = directory
        self._prepare = prepare

    def start(self, place: Place, inherited: Iterable[int]) -> Started:  # noqa: ARG002 - exec closes them
        ours, theirs = wire.pair()
        token = os.urandom(wire.TOKEN_BYTES)
        dump = _dump_file()
        page = os.memfd_create("ondol-phase", os.MFD_CLOEXEC)
        os.ftruncate(page, mmap.PAGESIZE)
        start = {
            "channel": theirs.fileno(),
            "dump": dump,
            "phase": page,
            "token": token.hex(),
            "place": asdict(place),
            "parent": os.getpid(),
        }
        environment = {**os.environ, **place.env, "TMPDIR": place.tmpdir, WORKER_ENV: json.dumps(start)}
        process = subprocess.Popen(
            itself.python("pytest", *self._arguments),
            cwd=self._directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), dump, page),
        )
        theirs.close()
        process.returncode = 0  # the agent waits for it by its pid; Popen must not
        phase = mmap.mmap(page, mmap.PAGESIZE)
        os.close(page)
        return Started(process.pid, wire.Channel(ours, token), dump, phase)


def adopt_spawned() -> tuple[wire.Channel, Place, mmap.mmap] | None:
    """In a spawned worker, early: take the channel out of the environment. None everywhere else."""
    text = os.environ.pop(WORKER_ENV, None)
    if text is None:
        return None
    start = json.loads(text)
    place = Place(**start["place"])
    high_dump = move_up(start["dump"])
    channel = wire.Channel(socket.socket(fileno=move_up(start["channel"])), bytes.fromhex(start["token"]))
    settle_in(place, start["parent"], high_dump)
    phase = mmap.mmap(start["phase"], mmap.PAGESIZE)
    os.close(start["phase"])
    return channel, place, phase
