"""The controller's end of an agent: starting it, talking to it, and cleaning up after it when it is killed."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from ondol.fleet import wire
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.launch import ForkLauncher, Reborn
from ondol.fleet.messages import AgentEvent, Buried, Event, Finish, Interrupt, Kill, Ping, RunItem, ToNode
from ondol.fleet.starts import AsAgent, Limits, Rules, Session, as_environment
from ondol.fleet.worker.hygiene import loaded_libraries_counter
from ondol.fleet.worker.spawned import to_join
from ondol.fleet.worker.worker import be_quiet, begin_in_fork
from ondol.host import killing, own_python, proctree
from ondol.host.gpu_context import cuda_fault

#: Seconds. An agent that is told to end is waited for so long if it does not answer, and so long for its end.
HURRY, BURY = 10.0, 30.0


class AgentLink:
    """One agent process and the channel to it. An agent that does not answer (stopped, or in the kernel) is ended."""

    def __init__(self, pid: int, channel: wire.Channel, before: set[int], silence: float) -> None:
        self.pid = pid
        self.channel = channel
        self._before = before
        self.gone = False
        self._silence = silence or float("inf")
        #: Since when it owes us an answer; and when it was last heard.
        self._asked: float | None = None
        self._heard = time.monotonic()
        self._why = ""
        self._outbox: list[ToNode] = []
        #: Slots that it knows: what belongs to a slot and not to an item is said once.
        self._told: set[str] = set()

    def send(self, message: ToNode) -> None:
        """Items wait until there is nothing more to hand out: they go together."""
        if isinstance(message, Interrupt | Kill | Finish):
            self._silence = min(self._silence, HURRY)
        if isinstance(message, RunItem):
            if message.slot in self._told:
                message = message._replace(env={}, devices=())
            self._told.add(message.slot)
        self._outbox.append(message)
        if not isinstance(message, RunItem):
            self._flush()

    def _flush(self) -> None:
        waiting, self._outbox = self._outbox, []
        try:
            self.channel.send(*waiting)
        except OSError:
            self.gone = True

    def receive(self, timeout: float | None, also: int | None = None) -> list[Event]:
        """What has arrived, waiting for it or for `also`; sets `gone` at the end of the stream."""
        if self._outbox:
            self._flush()
        watched = [self.channel.fileno()] + ([also] if also is not None else [])
        if self.channel.fileno() not in select.select(watched, [], [], timeout)[0]:
            self._look_at_the_clock(time.monotonic())
            return []
        found, open_ = self.channel.receive_all()
        self.gone = self.gone or not open_
        self._heard, self._asked = time.monotonic(), None
        return [message for message in found if isinstance(message, AgentEvent)]

    def _look_at_the_clock(self, now: float) -> None:
        """Ask it when it has been quiet for a while; end it when it has owed us the answer for too long."""
        if self._asked is None and now - self._heard > self._silence / 4:
            self._asked = now
            self.send(Ping())
        elif self._asked is not None and now - self._asked > self._silence:
            self._end(f"it did not answer for {self._silence:g} s and was killed")

    def _end(self, why: str) -> None:
        self._why, self.gone = why, True
        killing.send(self.pid, signal.SIGKILL)

    def bury(self) -> Buried:
        """Wait for the agent and end whatever it left: killed itself, it could not clean up."""
        self.channel.close()
        try:
            pidfd = os.pidfd_open(self.pid)
            if not select.select([pidfd], [], [], BURY)[0]:
                self._end(f"it did not end within {BURY:g} s and was killed")
            os.close(pidfd)
            _, status = os.waitpid(self.pid, 0)
            buried = Buried(status == 0, self._why or killing.say_status(status))
        except (ChildProcessError, ProcessLookupError):
            buried = Buried(False, "gone")
        # Its orphans are ours now. Children that the controller had before, or started since, are the user's.
        strays = {p for p in proctree.children(os.getpid()) if p not in self._before and not _in_our_group(p)}
        killing.kill_all({*strays, *(d for p in strays for d in proctree.descendants(p))}, os.getpid())
        for pid in strays:
            killing.reap(pid)
        return buried


def _in_our_group(pid: int) -> bool:
    """What the controller started itself is in its own process group; workers and their children never are."""
    try:
        return os.getpgid(pid) == os.getpgid(0)
    except ProcessLookupError:
        return False


def fork_launcher(session: pytest.Session, base: Path | None) -> ForkLauncher:
    """Workers as forks of this process, which has collected."""
    # Looked for once here, a driver that is not there need not be searched on the disk by every fork.
    cuda_fault(loaded_libraries_counter())
    return ForkLauncher(partial(begin_in_fork, session, base), partial(to_join, session))


def be_agent(agent: Agent) -> None:
    """To its end; or to our own, when this process is a worker that the agent has forked."""
    try:
        agent.run()
        return
    except Reborn as worker:
        become = worker.become_worker
    become()


def start_forked(
    session: pytest.Session, base: Path | None, limits: Limits, rules: Rules, private: Iterable[int] = ()
) -> AgentLink:
    """The agent as a fork of the collected session; `private` are descriptors that no test may ever write to."""
    ours, theirs, token, before = _prepare()
    with warnings.catch_warnings():
        # Python ≥ 3.12 warns about any thread; `fork_check` has looked at the ones that matter.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        status = 70
        try:
            ours.close()
            for fd in private:
                os.close(fd)
            be_quiet(session.config)
            be_agent(Agent(wire.Channel(theirs, token), fork_launcher(session, base), limits, rules))
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    theirs.close()
    return AgentLink(pid, wire.Channel(ours, token), before, rules.silence)


def start_spawned(session: Session, limits: Limits, rules: Rules) -> AgentLink:
    """The agent as a new process, for a controller that must not be forked."""
    ours, theirs, token, before = _prepare()
    start = AsAgent(theirs.fileno(), token.decode(), limits, rules, session)
    process = subprocess.Popen(
        own_python.python("ondol.fleet.agent"),
        env={**os.environ, **as_environment(start)},
        stdin=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    process.returncode = 0  # waited for by its pid
    return AgentLink(process.pid, wire.Channel(ours, token), before, rules.silence)


def _prepare() -> tuple[socket.socket, socket.socket, bytes, set[int]]:
    """Both ends of the channel to an agent, its token, and the children that are there already."""
    sys.stdout.flush()
    sys.stderr.flush()
    proctree.become_subreaper()
    return *wire.pair(), wire.new_token(), set(proctree.children(os.getpid()))
