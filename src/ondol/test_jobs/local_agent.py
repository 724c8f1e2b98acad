"""How the agent of this machine is started: by fork where the process is clean, else by a new interpreter.

Where the last run of the same tests had to spawn, the agent and its workers start before anything is collected, so that
their imports pass beside the controller's own. Where that run's tests took their device while they were collected, each
is started for a device. If this run can fork after all, they are ended and nobody hears of them.
"""

import gc
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet import fork_check, messages, pytest_inside
from ondol.fleet.controller import history, link
from ondol.fleet.controller.controller import Link
from ondol.fleet.devices import Fleet
from ondol.fleet.starts import Limits, Rules, Session
from ondol.fleet.worker import spawned
from ondol.host import identity
from ondol.room import room
from ondol.test_jobs import worker_tmp

#: Suites that had to spawn are remembered, the newest so many.
REMEMBERED = 200
#: After the key of a suite that takes its device while it is collected.
_TOOK_DEVICES = "+device"


def limits_of(options: Any) -> Limits:
    names = ("startup_timeout", "teardown_timeout", "silence", "grace", "reap_timeout", "native_stacks")
    return Limits(*(float(getattr(options, "ondol_" + name)) for name in names))


def rules_of(options: Any, tmpdir: str) -> Rules:
    hygiene, recycle_after = options.ondol_hygiene, options.ondol_recycle_after
    return Rules(tmpdir, hygiene, recycle_after, room.links(os.environ), silence=options.ondol_engine_silence)


class Early:
    """An agent that was started before the collection, and its workers. It ends with pytest at the latest."""

    def __init__(self, config: pytest.Config, workers: int, homes: list[dict[str, str]]) -> None:
        options, params = config.known_args_namespace, config.invocation_params
        self._tmpdir = worker_tmp.make(tempfile.gettempdir())
        joined = Session([str(word) for word in params.args], str(params.dir), "", False, homes)
        self._link: link.AgentLink | None = link.start_spawned(
            joined, limits_of(options), rules_of(options, self._tmpdir)
        )
        self._link.send(messages.Warm(workers))

    def join(self, session: Session) -> Link | None:
        """Once: it belongs to the run from now on."""
        taken, self._link = self._link, None
        if taken is not None:
            taken.send(messages.Join(session.base, session.as_named, session.homes))
        return taken

    def drop(self) -> None:
        if self._link is not None:
            self._link.send(messages.Kill())
            self._link.bury()
            self._link = None

    def pytest_unconfigure(self) -> None:
        self.drop()
        shutil.rmtree(self._tmpdir, ignore_errors=True)


def may_begin(options: Any) -> bool:
    """Whether what the run will need may start beside its collection: nothing runs where pytest is only asked."""
    asked = ("collectonly", "help", "version", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow")
    return not options.ondol_collect_first and not any(getattr(options, name, None) for name in asked)


def begin(config: pytest.Config, fleet: Fleet, per_device: int) -> None:
    """Before conftests are loaded; does nothing where the last run forked."""
    options = config.known_args_namespace
    if not may_begin(options) or options.ondol_start == "fork":
        return
    known, key = history.load(_kept()), _key(config)
    homes = fleet.homes if key + _TOOK_DEVICES in known else []
    workers = per_device * sum(not device.of_other_model for device in fleet.devices)
    standing_by = max(1, len(homes))
    if workers + standing_by < len(os.sched_getaffinity(0)):  # else they would slow down those that everybody waits for
        workers += standing_by
    if homes or key in known:
        config.pluginmanager.register(Early(config, workers, homes), "ondol-early")


def _kept() -> Path:
    return Path(identity.user_state_dir()) / "ondol" / "spawned.json"


def _key(config: pytest.Config) -> str:
    options = config.known_args_namespace
    chosen = [str(config.rootpath), str(config.invocation_params.dir), *options.file_or_dir]
    text = json.dumps([*chosen, options.keyword, options.markexpr])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _remember(config: pytest.Config, spawned: bool) -> None:
    known, key = history.load(_kept()), _key(config)
    before = known.keys() & {key, key + _TOOK_DEVICES}
    now = {key + _TOOK_DEVICES if fork_check.device_in_use() else key} if spawned else set()
    if now != before:
        for one in before:
            del known[one]
        known.update(dict.fromkeys(now, time.time()))
        history.save(_kept(), dict(list(known.items())[-REMEMBERED:]))


#: So many forks, each a little cheaper, make up for the time that it takes to put the heap into large pages.
WORTH_LARGE_PAGES = 100


class LocalAgent:
    """Starts the agent, and another one when it has died."""

    def __init__(self, session: pytest.Session, fleet: Fleet, tmpdir: str, private: list[int], isolated: int) -> None:
        """`isolated` is how many items get a process of their own."""
        config = session.config
        self._session = session
        self._isolated = isolated
        self._private = private
        self._limits = limits_of(config.option)
        self._rules = rules_of(config.option, tmpdir)
        self._base = pytest_inside.base_temp(config)
        self._early: Early | None = config.pluginmanager.get_plugin("ondol-early")
        self._fleet = fleet
        self.why_not = fork_check.why_not_fork(config, fleet.environment(fleet.devices[:1]))
        _remember(config, self.why_not is not None)

    @property
    def mode(self) -> str:
        mode = "forked from the collected session"
        if self.why_not is not None:
            mode = f"spawned, each collecting what it is sent ({self.why_not})"
        if others := [f"{d.name} ({d.model})" for d in self._fleet.devices if d.of_other_model]:
            mode += (
                f"; collected for {self._fleet.devices[0].model}, those on {', '.join(others)} collect for themselves"
            )
        return mode

    def close(self) -> None:
        """The agent ends itself when nobody talks to it any more."""

    def start(self) -> Link:
        rules = self._rules
        self._rules = rules._replace(ahead=0)  # for the next one, if this one dies
        pytest_inside.share_log_file(self._session.config)
        if self.why_not is None:
            if self._early is not None:
                self._early.drop()
            if self._isolated > WORTH_LARGE_PAGES:
                from ondol.host import huge_pages

                huge_pages.collapse()  # here and not in the agent, which then shares them with us
            gc.unfreeze()  # a worker finds the garbage of the imports as plain pytest would
            started: Link = link.start_forked(self._session, self._base, self._limits, rules, self._private)
        else:
            joined = spawned.to_join(self._session, self._fleet)
            early = self._early.join(joined) if self._early else None
            started = early or link.start_spawned(joined, self._limits, rules)
        # No item runs here, and nothing that was collected goes away: nobody need look through it again and again.
        gc.freeze()
        return started
