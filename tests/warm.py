"""Asking `programs/warm_ondol.py`, a Python that has imported Ondol, to become `ondol …`.

For tests of what happens in a store, a room or a cache, which start Ondol by the dozen. Not for those of how Ondol
starts, what it imports, what others see of its process, or how it is killed: they start it as its users do.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

#: What Python reads when it starts, before any program runs.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE", "TZ", "MALLOC")
#: Of one message between the two.
_LONGEST = 100_000

_running: set[WarmOndol] = set()


def seconds() -> float:
    """Processor time of what was asked for. The kernel adds it to ours only when the asked process itself has ended."""
    return sum(one.spent for one in _running)


class WarmOndol:
    """Starts with the first question."""

    def __init__(self, python: str, script: Path, env: dict[str, str]) -> None:
        self.spent = 0.0
        self.env = env
        self.lock = threading.Lock()
        self.questions, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [python, str(script), str(theirs.fileno()), json.dumps(env)]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        self.process = subprocess.Popen(words, env=env, cwd="/", pass_fds=[theirs.fileno()], **quiet)  # type: ignore[call-overload]
        theirs.close()
        _running.add(self)

    def stop(self) -> None:
        self.questions.close()
        self.process.wait()
        _running.discard(self)

    def can(self, env: dict[str, str]) -> bool:
        """Whether a process with this environment would have started as this one has."""
        names = {name for name in {**env, **self.env} if name.startswith(AT_START)}
        fits = all(env.get(name) == self.env.get(name) for name in names)
        return fits and sum(map(len, [*env, *env.values()])) < _LONGEST // 4

    def ondol(
        self,
        arguments: list[str],
        uid: int | None,
        umask: int,
        cwd: str,
        env: dict[str, str],
        limits: dict[int, int],
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        mask = umask if umask >= 0 else _umask()
        asked = {"arguments": arguments, "uid": uid, "umask": mask, "cwd": cwd, "env": env, "limits": [*limits.items()]}
        answers, theirs = os.pipe()
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        given = [theirs, 0, their_out, their_err]
        try:
            message = json.dumps(asked).encode()
            assert len(message) < _LONGEST, "a question that is too long; start Ondol anew for it"
            socket.send_fds(self.questions, [message], given)
        finally:
            for file in (theirs, their_out, their_err):
                os.close(file)
        try:
            said, whole = _read_all([answers, out, err], time.monotonic() + timeout)
        finally:
            for file in (answers, out, err):
                os.close(file)
        numbers, stdout, stderr = (bytes(part).decode().replace("\r\n", "\n") for part in said)
        pid, _, ended = numbers.partition("\n")
        if not ended:
            os.kill(int(pid), signal.SIGKILL)
        if not whole:
            raise subprocess.TimeoutExpired(["ondol", *arguments], timeout, stdout, stderr)
        status, spent = ended.split()
        with self.lock:
            self.spent += float(spent)
        return subprocess.CompletedProcess(["ondol", *arguments], int(status), stdout, stderr)


def _read_all(files: list[int], until: float) -> tuple[list[bytearray], bool]:
    """What comes from these, to their ends or to that time; whether to their ends."""
    said = {file: bytearray() for file in files}
    with selectors.DefaultSelector() as waiting:
        for file in files:
            waiting.register(file, selectors.EVENT_READ)
        while waiting.get_map() and (left := until - time.monotonic()) > 0:
            for ready, _ in waiting.select(left):
                data = os.read(ready.fd, 1 << 16)
                said[ready.fd] += data
                if not data:
                    waiting.unregister(ready.fd)
        return list(said.values()), not waiting.get_map()


def _umask() -> int:
    """Of this process, without setting it: that would be for all threads."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
