"""The inside of a node's pytest: it collects, agrees with the controller on what was collected, and becomes the agent
of the node, whose workers are forks of it.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from itertools import zip_longest

import pytest

from ondol.errors import OndolError
from ondol.fleet import fork_check, messages, pytest_inside, wire
from ondol.fleet.agent.agent import Agent
from ondol.fleet.controller.link import be_agent, fork_launcher
from ondol.fleet.devices import Fleet
from ondol.fleet.starts import AsAgent, AsNode, Limits, Rules, as_environment
from ondol.fleet.worker import spawned
from ondol.host import own_python, proctree
from ondol.room import room


class NodeProcess:
    """This process as its node program sees it."""

    def __init__(self, start: AsNode) -> None:
        import socket

        self.start = start
        high = wire.move_up(start.channel)
        self.channel = wire.Channel(socket.socket(fileno=high), start.token.encode())
        proctree.die_with_parent(start.parent, signal.SIGTERM)

    def tell(self, message: messages.FromNode) -> None:
        try:
            self.channel.send(message)
        except OSError:
            os._exit(1)  # the node program is gone, and with it everybody who could want this

    def fail(self, error: OndolError) -> None:
        """Said before pytest says it in its own way, which nobody may be able to read."""
        self.tell(messages.Gone(str(error), True))


def in_order(items: Sequence[pytest.Item], go: messages.Go) -> list[pytest.Item]:
    """Those that the controller collected, in its order: a plugin may have shuffled them. `go.chosen`: they are a part
    of what is collected here. Raises `OndolError` when they are not the same.
    """
    here = [item.nodeid for item in items]
    if list(go.ids) == here:
        return list(items)
    known, wanted = dict(zip(here, items, strict=True)), set(go.ids)
    each_once = len(known) == len(here) and len(wanted) == len(go.ids)
    if each_once and (wanted <= known.keys() if go.chosen else wanted == known.keys()):
        return [known[nodeid] for nodeid in go.ids]
    raise OndolError(first_difference(go.ids, here))


def first_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """In words, where the two lists part."""
    counts = f"it collected {len(theirs)} items, the controller {len(ours)}"
    pairs = enumerate(zip_longest(ours, theirs, fillvalue="nothing"), 1)
    number, own, other = next((number, own, other) for number, (own, other) in pairs if own != other)
    return f"{counts}; the first difference is item {number}: {other} there, {own} here"


class NodePlugin:
    """Takes the place of the test loop."""

    def __init__(self, node_process: NodeProcess, fleet: Fleet) -> None:
        self._node_process = node_process
        self._fleet = fleet
        self._errors: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        pytest_inside.silence_terminal(session.config)

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.File):
            self._node_process.tell(messages.Collecting(collector.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            lines = [line for line in str(report.longreprtext).splitlines() if line.strip()]
            marked = [line for line in lines if line.startswith("E ")] or lines
            self._errors.append(f"{report.nodeid}: {marked[-1].removeprefix('E').strip() if marked else 'no reason'}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        status = 70
        try:
            go = self._agree(session)
            if go is not None:
                self._become_agent(session, go)
            status = 0
        except OndolError as error:
            self._node_process.fail(error)
        except BaseException:
            traceback.print_exc()
        os._exit(status)

    # ------------------------------------------------------------------ agreeing

    def _agree(self, session: pytest.Session) -> messages.Go | None:
        """What the controller says when it has heard what there is; None when it does not want us."""
        forgiven = session.config.option.continue_on_collection_errors
        env = self._fleet.environment(self._fleet.devices[:1])
        self._why_not_fork = fork_check.why_not_fork(session.config, env)
        self._node_process.tell(
            messages.Collected(
                errors=[] if forgiven else self._errors,
                devices=[device._asdict() for device in self._fleet.devices],
                cpus=len(os.sched_getaffinity(0)),
                host=os.uname().nodename,
                mode=self._why_not_fork or "forked",
                python=sys.version.split()[0],
            )
        )
        go = self._node_process.channel.receive()
        if not isinstance(go, messages.Go):
            return None
        session.items[:] = in_order(session.items, go)
        # Not before this is anything sent that an agent must read: it would be lost in our own buffer.
        self._node_process.tell(messages.Ready())
        return go

    # ------------------------------------------------------------------ becoming the agent

    def _become_agent(self, session: pytest.Session, go: messages.Go) -> None:
        tmpdir, links = self._node_process.start.tmpdir, room.links(os.environ)
        rules = Rules(tmpdir=tmpdir, links=links, term_is_notice=True, **go.rules)
        limits = Limits(**go.limits)
        if self._why_not_fork:
            self._replace_this_process(session, limits, rules)
        launcher = fork_launcher(session, pytest_inside.base_temp(session.config))
        be_agent(Agent(self._node_process.channel, launcher, limits, rules))

    def _replace_this_process(self, session: pytest.Session, limits: Limits, rules: Rules) -> None:
        """What collecting started here (threads, device contexts) must not live on in an agent. Never returns."""
        channel = self._node_process.channel
        os.set_inheritable(channel.fileno(), True)
        joined = spawned.to_join(session, self._fleet)
        start = AsAgent(channel.fileno(), self._node_process.start.token, limits, rules, joined)
        pytest_inside.stop_capture(session.config)
        os.environ.update(as_environment(start))
        os.execv(sys.executable, own_python.python("ondol.fleet.agent"))
