"""A run on an engine's nodes: what they are told, and how their agents are reached.

They were asked for, and each of them has to import and collect whatever happens: so they are launched before the first
conftest is imported here, and do it beside the controller.
"""

import os
import select
import signal
import threading
from typing import Any

import pytest

from ondol.engines.api import NodeOptions
from ondol.engines.choose import choose
from ondol.engines.links import Links, Terms
from ondol.fleet.controller.controller import Link
from ondol.fleet.controller.plan import Plan
from ondol.fleet.devices import Fleet
from ondol.fleet.messages import Go
from ondol.fleet.starts import ForNodes, take
from ondol.test_jobs.local_agent import limits_of, may_begin

#: Variables that decide what pytest collects; the engine or the user's template carries the others.
_CARRIED = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


class Far:
    """The agents of an engine's nodes, when a run is not on this machine. They end with pytest at the latest."""

    def __init__(self, config: pytest.Config, wish: NodeOptions) -> None:
        """Before conftests are loaded."""
        options, told = config.known_args_namespace, take(ForNodes)
        self.engine = choose(wish, os.environ)
        self.fleet = Fleet([], f"nodes of {self.engine.name}", tuple(options.ondol_device_env))
        self.mode = f"on nodes of {self.engine.name}"
        self._terms = _terms(config, wish.directory, told.settings if told else None)
        self._links: Links | None = None
        self._listener: _Listener | None = None
        if may_begin(options):
            _let_term_interrupt(config)
            self._links = Links(self.engine, self._terms)
            self._links.listen(0.0)
            self._listener = _Listener(self._links)
            config.pluginmanager.register(self._listener, "ondol-listener")
            config.add_cleanup(self.drop)

    def join(self, config: pytest.Config, plan: Plan, chosen: bool) -> "Far":
        """`chosen`: what was planned is a part of what nodes collect."""
        options = config.option
        rules = {"hygiene": options.ondol_hygiene, "recycle_after": options.ondol_recycle_after}
        self._go = Go(plan.ids, limits_of(options)._asdict(), rules, chosen)
        self._terms.prepares = len(plan.prepares)
        return self

    def start(self) -> Link:
        """They belong to the run from now on."""
        if self._listener is not None:
            self._listener.end()
            self._listener = None
        self._links = self._links or Links(self.engine, self._terms)
        self._links.agree(self._go)
        return self._links

    def close(self) -> None:
        """Whatever ended the run, what the engine gave is given back."""
        if self._links is not None:
            self._links.bury()

    def drop(self) -> None:
        """There was no run: nothing was collected, or not everything, or somebody pressed Ctrl-C."""
        if self._listener is not None and self._links is not None:
            self._listener.end()
            self._listener = None
            self._links.dismiss()


class _Listener:
    """While pytest collects, a thread does for the nodes what the controller does later: meets them, and answers.

    Whoever forks in a conftest must not see that. For the fork the thread ends, so that nothing of it is half done in
    the child and Python has no thread to warn about; it begins again with the next file. And the child closes the pipes
    to the nodes, which would take it for us when we are gone.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread: threading.Thread | None = None
        self._over = False
        os.register_at_fork(before=self._pause, after_in_child=self._forget)
        self.pytest_collectstart()

    def pytest_collectstart(self) -> None:
        if self._thread is None and not self._over:
            self._thread = threading.Thread(target=self._listen, name="ondol-nodes", daemon=True)
            self._thread.start()

    def _listen(self) -> None:
        while not select.select([self._wake], [], [], 0)[0]:
            self._links.listen(None, self._wake)

    def _pause(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._waker, b"!")
            thread.join()
            os.read(self._wake, 1)

    def _forget(self) -> None:
        if not self._over:
            self._over = True
            for node in self._links.nodes.values():
                node.launch.close()
            _let_term_kill()

    def end(self) -> None:
        self._pause()
        self._over = True
        os.close(self._wake)
        os.close(self._waker)


def _let_term_interrupt(config: pytest.Config) -> None:
    """SIGTERM while tests are collected would leave a job in Slurm's queue: as during the run, it is Ctrl-C."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        config.add_cleanup(_let_term_kill)


def _let_term_kill() -> None:
    if signal.getsignal(signal.SIGTERM) is signal.default_int_handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terms(config: pytest.Config, directory: str, settings: dict[str, Any] | None) -> Terms:
    """What can be said before anything is collected. `settings`: for the rooms on the nodes; None = no rooms."""
    options = config.known_args_namespace
    return Terms(
        # What every node program is told first.
        instructions={
            "arguments": [str(argument) for argument in config.invocation_params.args],
            "directory": directory,
            "environment": {name: os.environ[name] for name in _CARRIED if name in os.environ},
            "settings": settings,
        },
        workers_per_device=options.ondol_workers_per_device,
        engine_timeout=options.ondol_engine_timeout,
        collect_timeout=options.ondol_collect_timeout,
        silence=options.ondol_engine_silence,
        margin=options.ondol_engine_margin,
        show_errors=options.capture == "no",
    )
