"""A real Slurm on this machine: munged, slurmctld and a slurmd per node, with fake GPUs; made and ended by the tests.

The nodes share the kernel, so a "node" is a slurmd with a name; everything lies under one directory.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "scontrol", "squeue", "scancel")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

_CONFIGURATION = """\
ClusterName=ondol
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge/sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=1
SlurmctldPidFile={base}/run/slurmctld.pid
SlurmctldPort={ports[0]}
SlurmdPidFile={base}/run/slurmd-%n.pid
SlurmdSpoolDir={base}/spool/%n
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
StateSaveLocation={base}/state
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=2
UnkillableStepTimeout=10
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
SlurmdParameters=config_overrides
PrologFlags=Alloc
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str:
    """Why there can be no cluster here; empty when there can."""
    if os.geteuid() != 0:
        return "slurmd and munged of the tests run as root"
    missing = [program for program in PROGRAMS if not shutil.which(program, path=_PATH)]
    return f"not installed: {', '.join(missing)} (tests/setup_machine.py does it)" if missing else ""


def wait_for(condition: Callable[[], object], seconds: float = 120.0, pause: float = 0.02) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], pause)
    return True


def free_ports(count: int) -> list[int]:
    """For daemons that are started later, and started again: ports that the kernel gives to nobody who asks for any."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    outside = [*range(20_000, low), *range(high + 1, 65_536)] or list(range(20_000, 60_000))
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(outside)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            found += [] if port in found else [port]
    return found


class Cluster:
    """`nodes` × `gpus`, up until `close`."""

    def __init__(self, base: Path, nodes: int = 3, gpus: int = 2) -> None:
        self.base = base
        self.gpus = gpus
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._configure()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        for folder in ("munge", "run", "state", "log", "dev", *(f"spool/{node}" for node in self.nodes)):
            (self.base / folder).mkdir(parents=True, mode=0o755)
        (self.base / "munge" / "munge.key").write_bytes(os.urandom(1024))
        (self.base / "munge" / "munge.key").chmod(0o400)
        for number in range(self.gpus):
            # Slurm takes only device files; /dev/null's numbers do no harm.
            os.mknod(self.base / "dev" / f"nvidia{number}", 0o666 | 0o020000, os.makedev(1, 3))
        ports = free_ports(len(self.nodes) + 1)
        lines = [
            f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000"
            f" Gres=gpu:{self.gpus} State=UNKNOWN"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        ]
        text = _CONFIGURATION.format(base=self.base, ports=ports, nodes="\n".join(lines), host=socket.gethostname())
        self.configuration.write_text(text)
        names = ",".join(self.nodes)
        gres = f"NodeName={names} Name=gpu File={self.base}/dev/nvidia[0-{self.gpus - 1}]\n"
        (self.base / "gres.conf").write_text(gres)

    @property
    def configuration(self) -> Path:
        return self.base / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """For whoever wants to use this cluster."""
        return {"SLURM_CONF": str(self.configuration), "PATH": _PATH}

    def _daemon(self, name: str, *command: str) -> None:
        log = open(self.base / "log" / f"{name}.out", "ab")
        self._daemons[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **self.environment},
        )  # fmt: skip
        log.close()

    def _start(self) -> None:
        munge = self.base / "munge"
        files = {"key-file": "munge.key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._daemon("munged", "munged", "--foreground", "--force", *(f"--{k}={munge / v}" for k, v in files.items()))
        assert wait_for((munge / "sock").exists), self.logs()
        self._daemon("slurmctld", "slurmctld", "-D", "-i", "-c", "-f", str(self.configuration))
        for node in self.nodes:
            self.start_node(node)
        assert wait_for(lambda: all(self.state(node) == "IDLE" for node in self.nodes)), self.logs()

    def start_node(self, node: str) -> None:
        self._daemon(node, "slurmd", "-D", "-N", node, "-f", str(self.configuration))

    def slurmd(self, node: str) -> int:
        return self._daemons[node].pid

    def kill_slurmd(self, node: str) -> None:
        self._daemons[node].kill()
        self._daemons[node].wait()

    def run(self, *command: str, check: bool = True) -> str:
        """One of Slurm's commands."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=60, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + (done.stderr if not check else "")

    def state(self, node: str) -> str:
        """IDLE, ALLOCATED, DOWN*, MIXED+DRAIN …"""
        for word in self.run("scontrol", "-o", "show", "node", node, check=False).split():
            if word.startswith("State="):
                return word.removeprefix("State=")
        return ""

    def jobs(self) -> list[str]:
        return self.run("squeue", "-h", "-o", "%A").split()

    def restore(self) -> None:
        """Every node idle, nothing queued: the next test finds what the first one found."""
        for job in self.jobs():
            self.run("scancel", "--signal=KILL", "--full", job, check=False)
            self.run("scancel", job, check=False)
        for node in self.nodes:
            if self._daemons[node].poll() is not None:
                self.start_node(node)
            if self.state(node) != "IDLE":
                self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        assert wait_for(lambda: all(self.state(node) == "IDLE" for node in self.nodes)), self.logs()

    def logs(self) -> str:
        found = [*(self.base / "log").glob("*"), self.base / "munge" / "log"]
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in found if path.exists())

    def close(self) -> None:
        """Steps first: a slurmstepd outlives its slurmd."""
        for job in self.run("squeue", "-h", "-o", "%A", check=False).split():
            if job.isdigit():
                self.run("scancel", "--signal=KILL", "--full", job, check=False)
        for name in ("slurmctld", *self.nodes, "munged"):
            process = self._daemons.pop(name, None)
            if process is not None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
