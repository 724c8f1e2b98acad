"""Asking `programs/warm_pytest.py`, a Python that has imported pytest and Ondol, to become `python -m pytest …` or `… -m ondol …`."""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from warm import AT_START

PROGRAM = Path(__file__).parent / "programs" / "warm_pytest.py"


def early(environment: Mapping[str, str]) -> dict[str, str]:
    """What is read before anything is imported; a run's own PYTHONPATH comes with it."""
    later = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    return {name: environment[name] for name in environment.keys() - later if name.startswith(AT_START)}


#: Of the process that is kept for everybody.
EARLY = early(os.environ)


class WarmPytest:
    """One run, with the part of `subprocess.Popen` that a suite needs."""

    #: Processor seconds of all runs that are over: they are nobody's children here.
    spent = 0.0
    #: For each set of variables that are read before anything is imported.
    _keepers: ClassVar[dict[str, tuple[subprocess.Popen[bytes], socket.socket]]] = {}
    _one_at_a_time = threading.Lock()

    def __init__(self, module: str, arguments: list[str], cwd: str, environment: dict[str, str]) -> None:
        self.returncode: int | None = None
        read, write = os.pipe()
        self._status, status = os.pipe()
        self.stdout = open(read, "rb")
        asked = json.dumps([module, arguments, cwd, environment]).encode()
        with self._one_at_a_time:
            keeper = self._kept(early(environment))
            descriptors = array.array("i", [write, status])
            keeper.sendmsg([len(asked).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            keeper.sendall(asked)
        os.close(write)
        os.close(status)

    @classmethod
    def _kept(cls, variables: dict[str, str]) -> socket.socket:
        key = json.dumps(variables, sort_keys=True)
        if key not in cls._keepers:
            ours, theirs = socket.socketpair()
            others = {name: value for name, value in os.environ.items() if not name.startswith(AT_START)}
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno()), *AT_START],
                env={**others, **variables, "ONDOL_TEST_TAG": "0" * 32, "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            if not cls._keepers:
                atexit.register(cls._end)
            cls._keepers[key] = process, ours
        return cls._keepers[key][1]

    @classmethod
    def _end(cls) -> None:
        for process, ours in cls._keepers.values():
            ours.shutdown(socket.SHUT_RDWR)  # whoever else was forked with it
            ours.close()
            process.wait()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            with open(self._status) as status:
                code, spent = status.read().split()
            self.returncode = int(code)
            WarmPytest.spent += float(spent)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, None]:
        """All that it and its children print, until nobody can print any more."""
        deadline = time.monotonic() + timeout
        output = bytearray()
        while select.select([self.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            part = os.read(self.stdout.fileno(), 1 << 16)
            if not part:
                self.wait()
                return output.decode(errors="replace"), None
            output += part
        raise subprocess.TimeoutExpired("a warm pytest", timeout, bytes(output))
