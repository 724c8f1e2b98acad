"""Slurm: nodes of the allocation that we are in, or of one that we ask for; one `srun` step per node, so that the end
of one node ends nothing else. Allocation, binding of GPUs, authentication and killing stay Slurm's.
"""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ondol.engines.api import Engine, Gone
from ondol.errors import UsageError
from ondol.foreign_text import is_number

#: Slurm answers in milliseconds or not at all.
ASK_TIMEOUT = 5.0
#: Seconds for which an answer about the queue is good enough.
FRESH = 4.0
#: Says where the allocation is and then holds it: it ends, and the allocation with it, when our end of its standard
#: input is closed, also by our death.
_HOLDER = 'printf "ondol %s %s\\n" "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST"; exec cat >/dev/null'
_OVER = {
    "CANCELLED", "PREEMPTED", "TIMEOUT", "NODE_FAIL", "FAILED", "COMPLETED", "OUT_OF_MEMORY", "DEADLINE", "REVOKED",
    "BOOT_FAIL", "COMPLETING",
}  # fmt: skip
#: States in which a node takes no further step of ours.
_UNUSABLE = ("DOWN", "FAIL", "ERROR", "NOT_RESPONDING", "POWER", "REBOOT", "DRAIN")


@dataclass
class SlurmEngine(Engine):
    """One allocation."""

    agent: list[str]
    #: Read once: sites unset Slurm's variables for the programs that they start.
    env: Mapping[str, str]
    #: Arguments of `salloc`; empty = we must be in an allocation.
    ask_for: str = ""
    #: More arguments of `srun`.
    step: str = ""
    name: str = "slurm"
    job: str = ""
    _nodes: list[str] = field(default_factory=list)
    _salloc: subprocess.Popen[bytes] | None = None
    _output: bytes = b""
    _refused: str = ""
    _end: float | None = None
    _asked_end: float = float("-inf")
    _asked_queue: float = float("-inf")
    _queue: str = ""

    # ------------------------------------------------------------------ getting nodes

    def check(self) -> None:
        """What can be said before anything is collected. Raises `UsageError`."""
        for program in ("srun", "squeue", "scontrol", *(("salloc", "scancel") if self.ask_for else ())):
            if not shutil.which(program, path=self.env.get("PATH")):
                raise UsageError(
                    f"--engine slurm: there is no {program} on PATH",
                    hint="run this where Slurm's commands are: a login node, or inside a job",
                )
        _words("srun", self.step)
        _words("slurm", self.ask_for)
        unset = [name for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST") if not self.env.get(name)]
        if unset and not self.ask_for:
            raise UsageError(
                "--engine slurm: this is not inside an allocation",
                because=f"{unset[0]} is not set",
                hint='ask for one: --slurm "-p gpu -N 2 --gpus-per-node=8 -t 1:00:00"; or run it from sbatch or salloc',
            )

    def open(self) -> None:
        self.check()
        if self.ask_for:
            self._allocate()
            return
        self.job, names = self.env["SLURM_JOB_ID"], self.env["SLURM_JOB_NODELIST"]
        self._nodes = self._hostnames(names)
        if not self._nodes:
            raise UsageError(f"--engine slurm: scontrol cannot say which nodes {names!r} are")

    def _allocate(self) -> None:
        self._salloc = subprocess.Popen(
            # The loss of one node is the loss of one node.
            ["salloc", "--job-name=ondol", "--no-kill", *_words("slurm", self.ask_for), "/bin/sh", "-c", _HOLDER],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._salloc.stdout is not None
        os.set_blocking(self._salloc.stdout.fileno(), False)

    def nodes(self) -> list[str]:
        if self._salloc is not None and not self._nodes and not self._refused:
            self._listen_to_salloc()
        return self._nodes

    def _listen_to_salloc(self) -> None:
        salloc = self._salloc
        assert salloc is not None
        assert salloc.stdout is not None
        ended = salloc.poll() is not None
        self._output += salloc.stdout.read() or b""
        lines = [line.strip() for line in self._output.decode(errors="replace").splitlines() if line.strip()]
        for words in map(str.split, lines):
            if words[0] == "ondol" and len(words) == 3:
                self.job = words[1]
                self._nodes = self._hostnames(words[2])
                return
            # `salloc: Pending job allocation 12`, `salloc: Granted job allocation 12`
            if "allocation" in words and is_number(words[-1]):
                self.job = words[-1]
        if ended:
            self._refused = lines[-1] if lines else f"salloc ended with status {salloc.returncode}"

    def pending(self) -> str:
        if self._salloc is None or self._nodes or self._refused:
            return ""
        now = time.monotonic()
        if self.job and now - self._asked_queue > FRESH:
            self._asked_queue = now
            self._queue = self._ask("squeue", "-h", "-j", self.job, "-o", "%T: %r").strip()
        return f"Slurm job {self.job}, {self._queue}" if self._queue else "an allocation"

    def refused(self) -> str:
        return self._refused

    def _hostnames(self, names: str) -> list[str]:
        return self._ask("scontrol", "show", "hostnames", names).split()

    # ------------------------------------------------------------------ one node

    def command(self, node: str) -> list[str]:
        return [
            "srun",
            f"--jobid={self.job}",
            f"--nodelist={node}",
            "--nodes=1",
            "--ntasks=1",
            # Beside whatever else the job runs there; the end of this step is nobody else's.
            "--overlap",
            "--kill-on-bad-exit=0",
            # The step gets what the job has on the node, not one core of it.
            "--mem=0",
            "--cpu-bind=none",
            "--job-name=ondol-agent",
            *_words("srun", self.step),
            *self.agent,
        ]

    def environment(self) -> dict[str, str]:
        """Without what a batch script's variables would make of our steps; where Slurm is, and its scratch, stay."""
        kept = ("SLURM_CONF", "SLURM_TMPDIR")
        drop = ("SLURM_", "SRUN_", "SALLOC_", "SBATCH_")
        return {name: value for name, value in self.env.items() if name in kept or not name.startswith(drop)}

    def why_waiting(self, node: str) -> str:
        state = self._node_state(node)
        return f"srun on {node}" + (f", which is {state}" if state else "")

    def why_gone(self, node: str) -> Gone:
        state, _, reason = self._ask("squeue", "-h", "-j", self.job, "-t", "all", "-o", "%T|%r").strip().partition("|")
        if state in _OVER:
            told = f"Slurm job {self.job} is {state}" + (f" ({reason})" if reason not in {"", "None"} else "")
            return Gone(told, machine=True, again=False)
        # The job still counts as running during the partition's GraceTime.
        since = self._shown("job", self.job, "PreemptTime")
        if since not in {"", "None"}:
            return Gone(f"Slurm preempts job {self.job} (since {since})", machine=True, again=False)
        machine = self._node_state(node)
        if any(word in machine for word in _UNUSABLE):
            return Gone(f"Slurm says that {node} is {machine}", machine=True, again=False)
        return Gone()

    def _node_state(self, node: str) -> str:
        """IDLE, MIXED, DOWN*, ALLOCATED+DRAIN …; an asterisk says that it does not answer."""
        return self._shown("node", node, "State").replace("*", "+NOT_RESPONDING")

    def _shown(self, kind: str, name: str, field: str) -> str:
        for word in self._ask("scontrol", "-o", "show", kind, name).split():
            if word.startswith(f"{field}="):
                return word.removeprefix(f"{field}=")
        return ""

    # ------------------------------------------------------------------ time

    def seconds_left(self) -> float | None:
        """Slurm is asked about once a minute: an administrator may have changed it."""
        now = time.monotonic()
        if self.job and self._nodes and now - self._asked_end > 60.0:
            self._asked_end = now
            left = parse_left(self._ask("squeue", "-h", "-j", self.job, "-o", "%L").strip())
            self._end = None if left is None else now + left
        return None if self._end is None else self._end - now

    def close(self) -> None:
        """What we asked for is given back, also when it was still queued."""
        if self._salloc is None:
            return
        salloc, self._salloc = self._salloc, None
        assert salloc.stdin is not None
        salloc.stdin.close()
        if self.job:
            self._ask("scancel", self.job)
        elif salloc.poll() is None:
            salloc.terminate()
        try:
            salloc.wait(timeout=10)
        except subprocess.TimeoutExpired:
            salloc.kill()
            salloc.wait()
        assert salloc.stdout is not None
        salloc.stdout.close()

    def _ask(self, *command: str) -> str:
        """What one of Slurm's commands prints; nothing when it fails or does not answer."""
        try:
            done = subprocess.run(
                command, env=self.environment(), capture_output=True, text=True, timeout=ASK_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout if done.returncode == 0 else ""


def _words(option: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--{option}: {text!r} cannot be split into words", because=str(error))


def parse_left(text: str) -> float | None:
    """`1-02:03:04`, `3:04`, `UNLIMITED`: seconds; None when there is no limit or nobody knows it."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(map(is_number, parts)) or (dash and not is_number(days)):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + (int(days) * 86400 if dash else 0))
