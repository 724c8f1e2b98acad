"""The node program, `ondol node`: what a launch command starts on a node. It opens a room, starts the user's pytest in
it, and carries messages between the controller and the agent that pytest becomes.

It never runs user code. When the controller goes away, or is not heard for long, it ends everything below it; when
everything below it has ended, it harvests the room and leaves.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ondol import __version__, config
from ondol.config import Settings
from ondol.errors import OndolError
from ondol.fleet import messages, wire
from ondol.fleet.interrupts import Interrupts
from ondol.fleet.starts import FORMAT, AsNode, as_environment
from ondol.fleet.wire import Stdio
from ondol.host import killing, process, proctree
from ondol.jobs import run_command
from ondol.jobs.job import Job, read_json
from ondol.report import terminal
from ondol.test_jobs import worker_tmp
from ondol.test_jobs.attempts import Attempts
from ondol.test_jobs.item_caches import ItemCaches
from ondol.test_jobs.run_tests import command_line, end_leftovers
from ondol.trust import ci, policy

#: Seconds for an agent whose controller is gone to end its workers itself.
PATIENCE = 10.0
#: What the front itself does with them.
_NOT_FOR_NODES = {"json", "quiet", "verbose", "strict", "sign-key", "retries"}
#: Beside the settings: what the CI system says here.
EVENT = "event"


def for_nodes(settings: Settings, env: Mapping[str, str]) -> dict[str, Any]:
    """The cache wing's settings for the rooms of far nodes, resolved once, where the run was asked for.

    The CI event is read here: a node that sees no variables of the CI system would take a pull request's job for
    somebody at a terminal.
    """
    rows = [(option.name, value) for option, value in settings.rows() if option.taken_by("run")]
    given = {name: value.value for name, value in rows if value.origin != "default"}
    event = ci.read_event(env, read_json, settings.trusted_jobs)
    return {**{name: value for name, value in given.items() if name not in _NOT_FOR_NODES}, EVENT: list(event)}


def taken_apart(told: Mapping[str, Any], env: Mapping[str, str]) -> tuple[Settings, policy.Event]:
    """On a node: the settings and the event that `for_nodes` sent."""
    settings = {name: value for name, value in told.items() if name != EVENT}
    return config.merge(settings, env), policy.Event(*told[EVENT])


def run() -> int:
    """The whole life of a node program; the first line of standard input says what to do."""
    stdio = Stdio()
    first, rest = b"", b""
    while not first.endswith(b"\n"):
        data = stdio.read()
        if not data:
            return 1  # whoever started us is gone, or did not mean us
        line, newline, rest = data.partition(b"\n")
        first += line + newline
    try:
        told = json.loads(first)
        if told["format"] != FORMAT:
            raise ValueError(f"format {told['format']}")
    except (ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"ondol node: the controller's Ondol does not fit this one, {__version__}: {error}\n")
        return 2
    return _Program(stdio, told, rest).run()


class _Program:
    """One node for one run: carries messages until pytest, which becomes the agent, has ended."""

    def __init__(self, stdio: Stdio, told: dict[str, Any], rest: bytes) -> None:
        self._stdio = stdio
        self._told = told
        #: What came with the first line.
        self._rest = rest
        self._token = told["token"].encode()
        self._decoder = wire.Decoder(self._token)
        self._problem = ""
        self._attempts = Attempts()
        #: pytest, once it is started.
        self._pid = 0
        self._has_agent = False
        #: Whether the run went well, as far as the controller knew when it let us go.
        self._good = False
        self._told_interrupts = 0
        self._controller_gone = 0.0
        self._limit = 2 * float(told["silence"])

    def _tell(self, message: messages.Message) -> None:
        self._stdio.send(wire.encode(self._token, message))
        self._stdio.flush_some()

    def run(self) -> int:
        proctree.become_subreaper()
        self._tell(messages.Here(__version__, socket.gethostname(), os.getpid()))
        # What a killed run left here may still hold the devices.
        left = killing.sweep_orphans()
        if left:
            text = f"ended {len(left)} processes that a killed run had left here"
            self._tell(messages.NodeNote(self._told["node"], text))
        try:
            os.chdir(self._told["directory"])
            self._run_in_room()
        except (OSError, OndolError) as error:
            self._fail(f"{error}", hopeless=True)
        if not self._pid and not self._problem:
            self._fail("it was interrupted before pytest was started")
        if not self._problem:
            self._tell(messages.Bye())
        self._stdio.flush(PATIENCE)
        return 1 if self._problem else 0

    def _fail(self, why: str, *, hopeless: bool = False) -> None:
        self._problem = why
        self._tell(messages.Gone(why, hopeless))

    def _run_in_room(self) -> None:
        environment = {
            **os.environ,
            **self._told["environment"],
            killing.OWNER_VARIABLE: process.myself().encode().decode(),
        }
        if self._told["settings"] is None:
            self._pytest(environment)
            return
        settings, event = taken_apart(self._told["settings"], environment)
        spans, python = self._attempts.spans, sys.executable
        job = Job(["pytest"], settings, environment, lambda *_: None, program=python, event=event, cut_off=spans)
        status = run_command.run(job, self._pytest)
        said = terminal.lines(job.report, quiet=False, verbose=False, require_warm=settings.require_warm)
        self._tell(messages.NodeRoom(self._told["node"], status, job.report.as_dict(), said))

    # ------------------------------------------------------------------ pytest, which becomes the agent

    def _pytest(self, environment: dict[str, str], through: Sequence[str] = ()) -> int:
        ours, theirs = wire.pair()
        token = wire.new_token()
        tmpdir = worker_tmp.make(environment.get("TMPDIR") or tempfile.gettempdir())
        start = AsNode(theirs.fileno(), token.decode(), self._told["node"], tmpdir, os.getpid())
        child = subprocess.Popen(
            command_line(self._told["arguments"], through),
            env={**environment, **as_environment(start)},
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        child.returncode = 0  # waited for by its pid
        self._pid = child.pid
        self._pidfd = os.pidfd_open(child.pid)
        self._channel = wire.Channel(ours, token)
        self._caches = ItemCaches(environment)
        self._heard = time.monotonic()  # not before: a room may take minutes to fill
        try:
            with Interrupts(escalate=False) as interrupts:
                return self._carry(interrupts)
        finally:
            end_leftovers()
            shutil.rmtree(tmpdir, ignore_errors=True)
            self._tell(messages.Harvest())

    def _carry(self, interrupts: Interrupts) -> int:
        self._pass_on(self._rest)
        ended = False
        while not ended:
            ended = self._turn(interrupts)
        self._from_agent()
        _, status = os.waitpid(self._pid, 0)
        os.close(self._pidfd)
        self._channel.close()
        if status and not self._controller_gone:
            self._fail(killing.say_status(status))
        return 0 if self._good and not status else 1

    def _turn(self, interrupts: Interrupts) -> bool:
        watched = [self._channel.fileno(), self._pidfd, interrupts.fileno()]
        if not self._controller_gone:
            watched.append(self._stdio.reading)
        writing = [self._stdio.writing] if self._stdio.has_more_to_send else []
        readable, _, _ = select.select(watched, writing, [], 1.0)
        self._stdio.flush_some()
        if self._stdio.reading in readable:
            self._from_controller()
        if self._channel.fileno() in readable:
            self._from_agent()
        if interrupts.count > self._told_interrupts:
            interrupts.acknowledge()
            self._told_interrupts = interrupts.count
            name = signal.Signals(interrupts.signal).name
            self._tell(messages.Notice(f"{name} was sent to the node program"))
        self._look_at_the_clock()
        return self._pidfd in readable

    def _from_controller(self) -> None:
        data = self._stdio.read()
        if not data:
            self._lose_controller()
            return
        self._heard = time.monotonic()
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if isinstance(message, messages.Ping) and not self._has_agent:
                self._tell(messages.Pong())
                continue
            if isinstance(message, messages.Heal):
                self._tell(messages.Healed(message.item, self._caches.heal(message.text)))
                continue
            if isinstance(message, messages.Finish):
                self._good = message.good
            try:
                self._channel.send(message)
            except OSError:
                return  # it is dead; its pidfd says so

    def _from_agent(self) -> None:
        found, open_ = self._channel.receive_all()
        for message in found:
            # From now on it answers for itself: one that is stopped must not be taken for alive.
            self._has_agent = self._has_agent or isinstance(message, messages.Ready)
            if isinstance(message, messages.Started):
                self._attempts.start(message.item, message.attempt, time.time())
            elif isinstance(message, messages.Ended):
                self._attempts.end(message.item, message.attempt, message.how, time.time())
            self._tell(message)
        if not open_ and proctree.alive(self._pid):
            # It closed its end and lives on, or is about to die: either way there is nothing more to hear.
            select.select([self._pidfd], [], [], PATIENCE)
            killing.send(self._pid, signal.SIGKILL)

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._stdio.broken or (self._limit and now - self._heard > self._limit):
            self._lose_controller()
        if self._controller_gone and now - self._controller_gone > PATIENCE:
            killing.kill_all({self._pid, *proctree.descendants(self._pid)}, os.getpid())

    def _lose_controller(self) -> None:
        """The agent hears the end of its channel, ends every worker, and itself."""
        if not self._controller_gone:
            self._controller_gone = time.monotonic()
            self._channel.sock.shutdown(socket.SHUT_WR)
            if not proctree.catches(self._pid, signal.SIGTERM):
                killing.send(self._pid, signal.SIGTERM)  # it still collects, and listens to nobody
