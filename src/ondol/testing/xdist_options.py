"""pytest-xdist's options, as a run of ours understands them: what was typed, or stands in a suite's `addopts`, keeps
its meaning or is refused with what to type instead.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ondol.errors import UsageError
from ondol.foreign_text import is_number

if TYPE_CHECKING:  # every pytest that has Ondol installed imports this module
    from ondol.fleet.devices import Fleet

DISTS = ("load", "loadscope", "loadfile", "loadgroup", "worksteal", "no")


class XdistOptions(NamedTuple):
    """What the options say."""

    workers: int | str | None = None
    most: int | None = None
    dist: str = "no"
    tx: tuple[str, ...] = ()


XDIST_OPTIONS = pytest.StashKey[XdistOptions]()


def add(parser: pytest.Parser, manager: pytest.PytestPluginManager) -> None:
    """Only where pytest-xdist, which adds them itself, will not be loaded."""
    if _is_loaded(manager):
        return
    group = parser.getgroup("xdist", "pytest-xdist's options, for runs with --ondol-devices")
    number = {"type": lambda text: int(text) if is_number(text) else text, "metavar": "N"}
    group._addoption("-n", "--numprocesses", dest="numprocesses", help="number of CPU workers, or auto", **number)
    group.addoption("--maxprocesses", type=int, metavar="N", help="at most this many for `-n auto`")
    group.addoption("--dist", choices=[*DISTS, "each"], default="no", help="what stays together on one worker")
    group._addoption("-d", action="store_true", dest="distload", help="the same as --dist load")
    group.addoption("--tx", action="append", default=[], metavar="SPEC", help="refused: use --ondol-devices")
    order = {"action": "store_false", "dest": "loadscopereorder", "default": True}
    group.addoption("--no-loadscope-reorder", help="keep the collected order", **order)
    for name in ("--max-worker-restart", "--maxschedchunk"):
        group.addoption(name, metavar="N", help="for suites whose addopts have it; nothing to choose here")
    group.addoption("--testrunuid", metavar="TEXT", help="what the fixture testrun_uid returns")


def _is_loaded(manager: pytest.PytestPluginManager) -> bool:
    """Now or soon: by itself, as installed plugins are, unless that was forbidden; else because somebody names it."""
    if find_spec("xdist") is None or manager.is_blocked("xdist"):
        return False
    by_itself = not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    return by_itself or manager.hasplugin("xdist") or "xdist" in os.environ.get("PYTEST_PLUGINS", "")


def refuse_alone(config: pytest.Config) -> None:
    """In a run that is not ours, and without pytest-xdist, nobody would obey them."""
    if config.pluginmanager.hasplugin("xdist"):
        return
    idle: list[tuple[str, str, Any]] = [("numprocesses", "-n", None), ("dist", "--dist", "no")]
    for name, flag, nothing in [*idle, ("tx", "--tx", []), ("distload", "-d", False)]:
        if config.getoption(name, nothing) != nothing:
            raise pytest.UsageError(f"{flag} needs pytest-xdist, which is not loaded, or --ondol-devices")


def put_aside(config: pytest.Config) -> None:
    """Before others look: pytest-cov and xdist itself would wait for workers that xdist never starts."""
    options = config.known_args_namespace
    dist = "load" if getattr(options, "distload", False) else getattr(options, "dist", "no")
    number, most = (getattr(options, name, None) for name in ("numprocesses", "maxprocesses"))
    config.stash[XDIST_OPTIONS] = XdistOptions(number, most, dist, tuple(getattr(options, "tx", ())))
    options.numprocesses, options.tx, options.distload, options.dist = None, [], False, "no"


def check(config: pytest.Config) -> None:
    wish = config.stash[XDIST_OPTIONS]
    if wish.tx:
        counts = [text.partition("*")[0] for text in wish.tx]
        total = sum(int(count) if is_number(count) else 1 for count in counts)
        raise UsageError(
            f"--tx {wish.tx[0]}{_source(config, '--tx')} starts workers of pytest-xdist; nothing was run",
            hint=f"--devices cpu:{total}, or --engine ssh:HOST for other machines",
        )
    if wish.dist == "each":
        raise UsageError(
            f"--dist each{_source(config, '--dist')} runs every test on every worker, which Ondol does not",
            hint="--dist load, and one run for each environment",
        )


def counted(config: pytest.Config, spec: str, fleet: Fleet | None, per_device: int) -> str:
    """The devices that `-n` means, where these are CPUs and nobody gave their number; without a fleet: of nodes."""
    wish = config.stash[XDIST_OPTIONS]
    now = len(fleet.devices) * per_device if fleet else 0
    cpus = fleet is not None and fleet.devices[0].kind == "cpu" and spec in {"auto", "cpu"} and per_device == 1
    number = wish.workers or 0
    if isinstance(number, str):  # auto: one for each device, unless somebody knows better
        told = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", "")
        number = int(told) if is_number(told) else now
    number = min(number, wish.most or number) if cpus else number
    if number in {0, now}:
        return spec
    if cpus:
        return f"cpu:{number}"
    there = f"--devices {spec} makes {now}" if fleet else "nodes bring their own devices"
    raise UsageError(
        f"-n {number}{_source(config, '-n')} asks for {number} workers, but {there}; nothing was run",
        hint=f"-n 0 leaves the number to the devices; --devices cpu:{number} makes {number} CPU workers",
    )


def _source(config: pytest.Config, flag: str) -> str:
    """Where it was written, if not on the command line."""
    if any(str(word).startswith(flag) for word in config.invocation_params.args):
        return ""
    if any(word.startswith(flag) for word in config.getini("addopts")):
        return f" (addopts in {config.inipath})"
    return " (PYTEST_ADDOPTS)"


@pytest.fixture(scope="session")
def worker_id(request: pytest.FixtureRequest) -> str:
    """The name of this worker: gw0, gw1 …"""
    return str(request.config.workerinput["workerid"])  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def testrun_uid(request: pytest.FixtureRequest) -> str:
    """The same in all workers of a run, and in no other run."""
    return str(request.config.workerinput["testrunuid"])  # type: ignore[attr-defined]
