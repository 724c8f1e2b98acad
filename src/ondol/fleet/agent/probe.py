"""A device's health, asked in a process that can be killed: a probe that hangs in the driver is an answer too."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import IO

from ondol.fleet import messages


@dataclass
class RunningProbe:
    """One run of a probe command; exit status 0 means healthy, its output is the reason otherwise."""

    device: str
    process: subprocess.Popen[bytes] | None
    output: IO[bytes]
    deadline: float
    problem: str = ""

    @classmethod
    def start(cls, message: messages.Probe, now: float) -> RunningProbe:
        output = tempfile.TemporaryFile()
        try:
            process = subprocess.Popen(
                message.command,
                env={**os.environ, **message.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return cls(message.device, None, output, now, f"cannot be started: {error}")
        return cls(message.device, process, output, now + message.timeout)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def next_look(self, now: float) -> float:
        # Its end wakes nobody, so look often; a probe is short and rare.
        return 0.0 if self.process is None else min(self.deadline, now + 0.02)

    def over(self, now: float) -> bool:
        if self.process is None or self.process.poll() is not None:
            return True
        if now < self.deadline:
            return False
        self.problem = "did not answer in time"
        os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.problem = "did not answer in time and cannot be killed"
        return True

    def fault(self) -> str | None:
        """None when healthy."""
        if self.problem:
            return self.problem
        assert self.process is not None
        if self.process.returncode == 0:
            return None
        self.output.seek(0)
        text = self.output.read(4000).decode(errors="replace").strip()
        return text or f"exit status {self.process.returncode}"
