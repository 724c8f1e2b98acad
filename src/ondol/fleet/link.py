"""The controller's end of an agent: starting it, talking to it, and cleaning up after it when it is killed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest

from ondol.fleet import wire
from ondol.fleet.agent import Agent, Rules, say_status
from ondol.fleet.keeper import Limits
from ondol.fleet.launch import ForkLauncher, SpawnLauncher
from ondol.fleet.wire import Message
from ondol.host import itself, killing, proctree

AGENT_ENV = "ONDOL_AGENT_START"


class Link:
    """One agent process and the channel to it."""

    def __init__(self, pid: int, channel: wire.Channel, before: set[int]) -> None:
        self.pid = pid
        self.channel = channel
        self._before = before
        self.gone = False

    def send(self, message: Message) -> None:
        try:
            self.channel.send(message)
        except OSError:
            self.gone = True

    def receive(self, timeout: float | None, also: int | None = None) -> list[Message]:
        """What has arrived, waiting for it or for `also`; sets `gone` at the end of the stream."""
        watched = [self.channel.fileno()] + ([also] if also is not None else [])
        if self.channel.fileno() not in select.select(watched, [], [], timeout)[0]:
            return []
        messages, open_ = self.channel.receive_all()
        self.gone = self.gone or not open_
        return messages

    def bury(self) -> str:
        """Wait for the agent and end whatever it left: killed itself, it could not clean up."""
        self.channel.close()
        try:
            _, status = os.waitpid(self.pid, 0)
            how = say_status(status)
        except ChildProcessError:
            how = "gone"
        # Its orphans are ours now. Children that the controller had before, or started since, are the user's.
        strays = {p for p in proctree.children(os.getpid()) if p not in self._before and not _in_our_group(p)}
        killing.kill_all({*strays, *(d for p in strays for d in proctree.descendants(p))}, os.getpid())
        for pid in strays:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        return how


def _in_our_group(pid: int) -> bool:
    """What the controller started itself is in its own process group; workers and their children never are."""
    try:
        return os.getpgid(pid) == os.getpgid(0)
    except ProcessLookupError:
        return False


def start_forked(
    session: pytest.Session, base: Path | None, limits: Limits, rules: Rules, private: Iterable[int] = ()
) -> Link:
    """The agent as a fork of the collected session; `private` are descriptors that no test may ever write to."""
    ours, theirs = wire.pair()
    token = os.urandom(wire.TOKEN_BYTES)
    before = _prepare()
    with warnings.catch_warnings():
        # Python ≥ 3.12 warns about any thread; `clean.why_not_fork` has looked at the ones that matter.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        status = 70
        try:
            ours.close()
            for fd in private:
                os.close(fd)
            Agent(wire.Channel(theirs, token), ForkLauncher(session, base), limits, rules).run()
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    theirs.close()
    return Link(pid, wire.Channel(ours, token), before)


def start_spawned(arguments: list[str], directory: str, limits: Limits, rules: Rules) -> Link:
    """The agent as a new process, for a controller that must not be forked."""
    ours, theirs = wire.pair()
    token = os.urandom(wire.TOKEN_BYTES)
    before = _prepare()
    start = {
        "control": theirs.fileno(),
        "token": token.hex(),
        "limits": asdict(limits),
        "rules": asdict(rules),
        "arguments": arguments,
        "directory": directory,
    }
    process = subprocess.Popen(
        itself.python("ondol.fleet.link"),
        env={**os.environ, AGENT_ENV: json.dumps(start)},
        stdin=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    process.returncode = 0  # waited for by its pid
    return Link(process.pid, wire.Channel(ours, token), before)


def _prepare() -> set[int]:
    sys.stdout.flush()
    sys.stderr.flush()
    proctree.become_subreaper()
    return set(proctree.children(os.getpid()))


def _main() -> None:
    """A spawned agent."""
    import socket

    start = json.loads(os.environ.pop(AGENT_ENV))
    control = wire.Channel(socket.socket(fileno=start["control"]), bytes.fromhex(start["token"]))
    os.set_inheritable(control.fileno(), False)
    launcher = SpawnLauncher(start["arguments"], start["directory"])
    Agent(control, launcher, Limits(**start["limits"]), Rules(**start["rules"])).run()


if __name__ == "__main__":
    _main()
