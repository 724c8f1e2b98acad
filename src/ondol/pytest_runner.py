"""What the pytest plugin does once it is asked for; nobody else pays for its imports."""

import os
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ondol import exitcodes
from ondol.config import convert
from ondol.errors import OndolError
from ondol.fleet import devices, fork_check, journal, journals, pytest_inside
from ondol.fleet.record import Book, RunRecord
from ondol.fleet.starts import AsNode, take
from ondol.fleet.worker import spawned
from ondol.foreign_text import printable
from ondol.host import own_python
from ondol.options import IN_PYTEST
from ondol.report import listeners, run_markdown, run_replay, run_summary, terminal
from ondol.test_jobs import local_agent, past_runs, run_session
from ondol.testing import fixtures, mistyped, node, tasks, xdist_options
from ondol.testing.facts import stand_ins

if TYPE_CHECKING:
    from ondol.test_jobs.far_nodes import Far

SPEC = pytest.StashKey[str]()
#: The devices of this machine, where tests run on it.
FLEET = pytest.StashKey[devices.Fleet]()
#: The nodes of an engine, where they do not.
FAR = pytest.StashKey["Far"]()
#: Whether `ondol test` is outside, and does what is left to do after the run.
FRONT = pytest.StashKey[bool]()
NODE_PROCESS = pytest.StashKey["node.NodeProcess | None"]()


def before_conftests(early_config: pytest.Config, parser: pytest.Parser, arguments: list[str]) -> None:
    """Before any conftest imports torch: pools that take every core make every worker slow."""
    early_config.stash[FRONT] = spawned.obey_the_front()
    options = early_config.known_args_namespace
    obey_the_ini_file(early_config, options)
    xdist_options.put_aside(early_config)
    spec = early_config.stash[SPEC] = wanted(early_config)
    if spawned.collects_from_facts():
        _answer_from_facts(early_config)
    if not spec or spawned.is_spawned():
        return
    as_node = take(AsNode)
    node_process = early_config.stash[NODE_PROCESS] = node.NodeProcess(as_node) if as_node else None
    per_device = options.ondol_workers_per_device
    try:
        if node_process is None:
            mistyped.check(early_config, parser, arguments)
            xdist_options.check(early_config)
            wish = run_session.node_options(early_config)
            if wish.far or wish.slurm or wish.srun:
                xdist_options.counted(early_config, spec, None, per_device)
                from ondol.test_jobs import far_nodes

                early_config.stash[FAR] = far_nodes.Far(early_config, wish)
                return  # the tests run on nodes, which look for their own devices
        extra, probe = tuple(options.ondol_device_env), options.ondol_probe or ""
        fleet = devices.choose(spec, os.environ, extra, probe)
        if node_process is None:
            counted = xdist_options.counted(early_config, spec, fleet, per_device)
            fleet = fleet if counted == spec else devices.choose(counted, os.environ, extra, probe)
    except OndolError as error:
        if node_process is not None:
            node_process.fail(error)
        raise pytest.UsageError(str(error))
    early_config.stash[FLEET] = fleet
    os.environ.update(fleet.collecting)
    fork_check.watch(early_config)
    _answer_from_facts(early_config)
    os.environ.update(devices.thread_caps(len(fleet.devices) * per_device, os.environ))
    if node_process is None:
        local_agent.begin(early_config, fleet, per_device)


def _answer_from_facts(config: pytest.Config) -> None:
    collecting = stand_ins.begin(config.known_args_namespace.ondol_device_facts)
    if collecting is not None:
        config.pluginmanager.register(collecting, "ondol-device-facts")


def obey_the_ini_file(config: pytest.Config, options: Any) -> None:
    """`ondol_timeout = 60` and its like, where nothing else was typed; else what the table says."""
    for option in IN_PYTEST:
        name = option.in_pytest
        said = getattr(options, name)
        text = str(config.getini(name)) if option.taken_by("ini") and said is None else ""
        if option.kind == "list":
            text = ",".join(said or text.split())
        try:
            if text:
                setattr(options, name, convert(option, text))
            elif said is None and name != "ondol_devices":  # of which `wanted` makes something
                setattr(options, name, option.default)
        except OndolError as error:
            raise pytest.UsageError(f"{name} in {config.inipath}: {error.line()}")


def wanted(config: pytest.Config) -> str:
    """The device specification; empty when nobody asked."""
    given = config.known_args_namespace.ondol_devices
    # `ondol test` gives an empty one when nothing was typed: then the ini file may have something to say.
    spec = str(given or config.getini("ondol_devices") or "")
    return spec or ("auto" if given is not None or run_session.node_options(config).far else "")


def take_over(config: pytest.Config) -> None:
    """Become a worker, a node's program or the whole run, as this pytest was started to be."""
    obey_the_ini_file(config, config.option)
    config.option.numprocesses, config.option.tx = None, []  # xdist has read them again, for its own `pytest_configure`
    if not config.pluginmanager.hasplugin("xdist"):
        config.addinivalue_line("markers", "xdist_group(name): items of one group stay together on one worker")
        config.pluginmanager.register(xdist_options, "ondol-xdist")
    spec = config.stash[SPEC]
    started = spawned.adopt()
    if started is not None:
        pytest_inside.be_xdist_worker(config, started[0].place.env)  # before a conftest asks whether it is one
        fixtures.register(config)
        config.pluginmanager.register(tasks.TaskPlugin(), "ondol-tasks")
        config.pluginmanager.register(spawned.SpawnedWorker(config, *started), "ondol-spawned")
        return
    if not spec:
        typed = [str(word) for word in config.invocation_params.args if str(word).startswith("--ondol-")]
        if typed:  # in addopts they are for the runs that ask for us
            raise pytest.UsageError(f"{typed[0]} does nothing without --ondol-devices: add --ondol-devices=auto")
        return
    node_process = config.stash.get(NODE_PROCESS, None)
    if node_process is None:
        refuse_debuggers(config)
    else:
        given = config.option.basetemp
        pytest_inside.stay_out_of_the_way(config, os.path.join(given, node_process.start.node) if given else "")
    fixtures.register(config)
    config.pluginmanager.register(tasks.TaskPlugin(config.getoption("ondol_runtime")), "ondol-tasks")
    if node_process is None:
        config.pluginmanager.register(Runner(config), "ondol-runner")
    else:
        config.pluginmanager.register(node.NodePlugin(node_process, config.stash[FLEET]), "ondol-node")


def refuse_debuggers(config: pytest.Config) -> None:
    """They wait for somebody to type, and nobody can type into a worker."""
    asked = [flag for name, flag in (("usepdb", "--pdb"), ("trace", "--trace")) if config.getoption(name, False)]
    if asked:
        words = [str(word) for word in config.invocation_params.args if not str(word).startswith("--ondol-")]
        if tuple(words[: len(own_python.PLUGIN)]) == tuple(own_python.PLUGIN):
            del words[: len(own_python.PLUGIN)]  # put there by `ondol test`
        plain = shlex.join(["pytest", "-p", "no:ondol", *words])
        raise pytest.UsageError(f"{asked[0]} needs the test in a process with a terminal; type: {plain}")


class Runner:
    """What the plugin does when it is asked for."""

    session: pytest.Session

    def __init__(self, config: pytest.Config) -> None:
        self.far: Far | None = config.stash.get(FAR, None)
        self.fleet = self.far.fleet if self.far else config.stash[FLEET]
        path = config.getoption("ondol_journal")
        try:
            rerun, history = config.getoption("ondol_rerun"), config.getoption("ondol_history")
            # Before this run has a journal, which would be the latest, and before old ones are removed.
            self.earlier = past_runs.earlier(rerun, history, config.rootpath) if rerun else None
            self.known = past_runs.known_entries(config.rootpath) if config.getoption("ondol_known") else []
            path = Path(path or journals.new_path())
            self.book = Book(path)
        except OndolError as error:
            raise pytest.UsageError(str(error))
        except OSError as error:
            raise pytest.UsageError(f"--journal {path}: {error}. Nothing was run; name a file that can be made")
        self.config = config
        self.ran = False
        self.not_kept = ""
        self.collected: list[str] = []
        self.told: list[str] = []

    # ------------------------------------------------------------------ collection

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.File):
            self.book.write(journal.Collecting(collector.nodeid))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """What `-k` and its like leave is what `--rerun` and `--shard` choose from."""
        self.collected = [item.nodeid for item in items]
        yield
        shard, history = self.config.getoption("ondol_shard"), self.config.getoption("ondol_history")
        root = self.config.rootpath
        try:
            if self.earlier is not None:
                self._choose(items, *past_runs.rerun(self.earlier, [item.nodeid for item in items], root))
            if shard:
                self._choose(items, *past_runs.shard(shard, [item.nodeid for item in items], history, root))
        except OndolError as error:
            raise pytest.UsageError(str(error))

    def _choose(self, items: list[pytest.Item], places: list[int], told: list[str]) -> None:
        self.told += told
        chosen = set(places)
        left = [item for place, item in enumerate(items) if place not in chosen]
        if left:
            self.config.hook.pytest_deselected(items=left)
            items[:] = [items[place] for place in places]

    def pytest_collection_finish(self) -> None:
        """A conftest may register a loop of its own (quack's `--async-compile`), which would be asked before ours."""
        loops = [one for one in self.config.hook.pytest_runtestloop.get_hookimpls() if not listeners.wraps(one)]
        first = loops[-1].plugin
        if first is not self and not self.config.option.collectonly:
            raise pytest.UsageError(
                f"{type(first).__module__}.{type(first).__qualname__} has a pytest_runtestloop of its own, which runs "
                "the tests in this process instead of in workers: nothing was run. Leave out the option that asks for "
                "it, or run the suite without Ondol: pytest -p no:ondol"
            )

    def pytest_report_collectionfinish(self) -> list[str]:
        return [printable(f"ondol: {line}") for line in self.told]

    # ------------------------------------------------------------------ the run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        option = session.config.option
        if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
            return None  # pytest's own loop says it
        if not session.items:
            return True
        try:
            wish = self.config.stash[xdist_options.XDIST_OPTIONS]
            ids = [item.nodeid for item in session.items]
            known, notes = past_runs.muted(self.known, ids, self.collected, self.config.rootpath)
            notes = [*self.told, *notes]
            run_session.run_session(session, self.fleet, self.book, wish.dist, self.far, known, notes)
        except OndolError as error:
            raise pytest.UsageError(str(error))
        self.ran = True
        return _say_how_it_stopped(session, self.book.record.stopped)

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        return run_replay.status_of(report)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        """Around every hook that ends the session: one may set its status, and none takes the end of the run along."""
        self.session = session
        status: int = pytest.ExitCode.TESTS_FAILED  # with which pytest ends when a hook raises
        try:
            try:
                yield
            except Exception as error:
                caller, given = self.config.hook.pytest_sessionfinish, {"session": session, "exitstatus": exitstatus}
                self.book.write(journal.Note(_forgive(caller, error, session, given)))
            if self.ran:
                session.exitstatus = exit_status(int(session.exitstatus), self.book.record)
            status = int(session.exitstatus)
        except pytest.UsageError:
            status = pytest.ExitCode.USAGE_ERROR
            raise
        finally:
            self._close_the_book(int(status))

    def _close_the_book(self, status: int) -> None:
        self.book.write(journal.Over(status, self.book.record.counts() if self.ran else {}))
        if self.ran and not self.config.stash[FRONT] and self.book.ours:
            where = self.config.option.ondol_history or past_runs.settings().history
            self.not_kept = past_runs.keep(self.book.path, where, self.book.record)

    def pytest_unconfigure(self) -> None:
        self.book.close()

    def pytest_report_header(self) -> str:
        if self.far is not None:
            return f"ondol: {self.fleet.how}, journal {self.book.path}"
        kind = self.fleet.devices[0].kind
        return f"ondol: {len(self.fleet.devices)} x {kind} ({self.fleet.how}), journal {self.book.path}"

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> Generator[None]:
        try:
            yield
        except Exception as error:
            given = {"terminalreporter": terminalreporter, "exitstatus": exitstatus, "config": self.config}
            told = _forgive(self.config.hook.pytest_terminal_summary, error, self.session, given)
            terminalreporter.line(f"note: {printable(told)}")
        if self.ran:
            run_summary.write(terminalreporter, self.book.record, self.book.path)
            if self.not_kept:
                terminalreporter.line(f"warning: {printable(self.not_kept)}")
            self._tell_github(terminalreporter)

    def _tell_github(self, reporter: Any) -> None:
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return
        found = self.book.record
        reporter.line("::group::ondol annotations")
        for line in run_markdown.commands(found):
            reporter.line(line)
        reporter.line("::endgroup::")
        if trouble := terminal.append_step_summary(run_markdown.render(found), os.environ):
            reporter.line(f"warning: {printable(trouble)}")


def _forgive(caller: Any, error: Exception, session: pytest.Session, given: dict[str, Any]) -> str:
    """What a hook of the suite raised at the end, named: the run is not green, and everything else is still shown."""
    told = listeners.finish(caller, error, given)
    if told is None:
        raise error
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        told += " The exit status is 1 because of it"
    return told


def _say_how_it_stopped(session: pytest.Session, stopped: journal.Stopped | None) -> bool:
    """Leave the loop as pytest's own would have."""
    if stopped is not None and stopped.reason == "interrupted":
        raise KeyboardInterrupt
    if stopped is not None and stopped.exit is not None:
        message, status = stopped.exit
        pytest.exit(message, status)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def exit_status(status: int, record: RunRecord) -> int:
    """pytest's own, unless the run could not say everything."""
    if not all(item.verdict for item in record.items):
        return int(pytest.ExitCode.INTERNAL_ERROR)
    if record.stopped is not None and record.stopped.reason == "session-timeout":
        return exitcodes.SESSION_TIMEOUT
    if status == pytest.ExitCode.OK and record.expired:
        return int(pytest.ExitCode.TESTS_FAILED)
    if status == pytest.ExitCode.OK and record.unknown:
        return exitcodes.INCOMPLETE
    # What the settings of the cache wing ask for is a matter of the rooms, and those are on the nodes.
    rooms = [room.status for room in record.rooms]
    asked = [s for s in (exitcodes.NOT_WARM, exitcodes.STRICT) if s in rooms]
    return asked[0] if status == pytest.ExitCode.OK and asked else status
