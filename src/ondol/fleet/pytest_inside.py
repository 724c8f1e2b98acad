"""Everything that leans on pytest's insides, in one place, so that a new pytest breaks one file.

A worker is a fork of a collected session. What must change in the fork: the capture files (their offsets are shared
with every other fork), the terminal reporter (it would print), the temporary directory factory (names would collide),
and the exit handlers (they belong to the process that registered them).
"""

import ast
import atexit
import copy
import fcntl
import logging
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest._code.code import ReprFileLocation
from _pytest.capture import CaptureManager
from _pytest.debugging import pytestPDB
from _pytest.junitxml import xml_key
from _pytest.runner import CallInfo
from _pytest.skipping import evaluate_skip_marks

from ondol.fleet import xdist
from ondol.fleet.messages import once

#: Options of reporters that write one file: the controller's pytest writes it, for all workers and nodes.
REPORTS = ("xmlpath", "report_log", "htmlpath", "resultlog", "json_report_file")

#: What conftests give to a worker, in its environment until it begins; a process cannot be given much more there.
INPUT, MOST_INPUT = "ONDOL_WORKERINPUT", 32768

#: Ride along with a serialised report.
SUBTESTS, BENCHMARKS, STOP = "ondol_failed_subtests", "ondol_benchmarks", "ondol_stop"
#: What pytest-benchmark takes from the fixture that measured.
_MEASURED = ("name", "fullname", "group", "param", "params", "extra_info")


class QuietReporter:
    """Stands where the terminal reporter stood: everybody still finds it, nobody makes it print."""

    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name.startswith("pytest_"):
            raise AttributeError(name)
        return getattr(self._real, name)


class Terminal:
    """What pytest prints goes through `file`, which may be replaced."""

    def __init__(self, config: pytest.Config) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._writer: Any = getattr(reporter, "_tw", None)
        self.isatty = bool(getattr(reporter, "isatty", False))
        #: By NO_COLOR, FORCE_COLOR, TERM and --color.
        self.colours = bool(getattr(self._writer, "hasmarkup", False))

    @property
    def file(self) -> Any:
        return getattr(self._writer, "_file", None)

    @file.setter
    def file(self, file: Any) -> None:
        if self._writer is not None:  # `-p no:terminal`
            self._writer._file = file


def silence_terminal(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not isinstance(reporter, QuietReporter):
        config.pluginmanager.unregister(reporter)
        config.pluginmanager.register(QuietReporter(reporter), "terminalreporter")


def announces_each_item(config: pytest.Config) -> tuple[Any, ...]:
    """The terminal, if it is verbose: its line before an item says what the line of the result will say again."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return () if reporter is None or config.option.verbose <= 0 else (reporter,)


def own_capture(config: pytest.Config) -> list[int]:
    """Give this process its own capture files; returns duplicates of their descriptors for who outlives us.

    New files behind the old descriptors: modules and log handlers hold the streams that they found at import.
    """
    manager = config.pluginmanager.get_plugin("capturemanager")
    capturing = getattr(manager, "_global_capturing", None)
    found = []
    for stream in (getattr(capturing, "out", None), getattr(capturing, "err", None)):
        try:
            number = stream.tmpfile.fileno()  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            continue  # capture=sys keeps its text in memory only
        with tempfile.TemporaryFile(buffering=0) as own:
            os.dup2(own.fileno(), number, inheritable=False)
        found.append(os.dup(number))
    return found


def stop_capture(config: pytest.Config) -> None:
    """Give descriptors 1 and 2 back: this process is about to become another program."""
    manager = config.pluginmanager.get_plugin("capturemanager")
    if isinstance(manager, CaptureManager) and manager.is_globally_capturing():
        manager.stop_global_capturing()


def base_temp(config: pytest.Config) -> Path | None:
    """The run's basetemp, made once in the controller, so that forks share it instead of racing for numbers."""
    factory = getattr(config, "_tmp_path_factory", None)
    return factory.getbasetemp() if factory is not None else None


def skipped_by_condition(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those that `skipif` skips here, and may not skip where a device is of another model."""
    found = []
    for item in items:
        # A condition that cannot be evaluated is an error of the item, when it is run.
        with suppress(Exception, pytest.fail.Exception):
            if evaluate_skip_marks(item) and not item.get_closest_marker("skip"):
                found.append(item)
    return found


def stay_out_of_the_way(config: pytest.Config, base: str) -> None:
    """Before plugins are configured: leave alone what the controller's pytest writes, and have an own base temp."""
    for name in REPORTS:
        if getattr(config.option, name, None):
            setattr(config.option, name, None)
    config.option.log_file_mode = "a"
    if base:
        os.makedirs(os.path.dirname(base), exist_ok=True)
        config.option.basetemp = base


def _literal(values: Any) -> str | None:
    """As a Python literal; None for what has none. xdist's own channel carries the same kinds of values."""
    text = repr(values)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return text


_PLAIN = "can carry plain values only (numbers, texts, lists, dicts …)"


def output_to_wire(config: pytest.Config) -> str:
    """xdist's `config.workeroutput`; empty when nobody put anything in."""
    output = getattr(config, "workeroutput", None)
    text = _literal(output) if output else ""
    if text is None:
        pytest.fail(f"config.workeroutput {_PLAIN}: {output!r:.200}")
    return text


def _of_xdist(config: pytest.Config, name: str) -> Any:
    """A hook of conftests and plugins that know xdist; not pytest-cov's, which means workers that xdist started."""
    if not getattr(config.hook, name, None):
        return None
    theirs = [one for one in config.pluginmanager.get_plugins() if type(one).__module__.startswith("pytest_cov")]
    return config.pluginmanager.subset_hook_caller(name, theirs)


def configure_node(config: pytest.Config, node: Any, env: dict[str, str]) -> dict[str, str]:
    """As xdist's controller, before a worker starts: what is put into `node.workerinput`, as a variable for it."""
    hook = _of_xdist(config, "pytest_configure_node")
    usual = _workerinput(env)
    node.config, node.workerinput = config, dict(usual)
    if hook is None:
        return {}
    hook(node=node)
    given = {name: value for name, value in node.workerinput.items() if name not in usual}
    text = _literal(given)
    if text is None or len(text) > MOST_INPUT:
        who = ", ".join(str(one.plugin_name) for one in hook.get_hookimpls())
        raise pytest.UsageError(
            f"pytest_configure_node of {who} put {given!r:.200} into node.workerinput, which {_PLAIN}, "
            f"{MOST_INPUT >> 10} KB at most; nothing was run. Put more into a file, and its name into workerinput"
        )
    return {INPUT: text} if given else {}


def node_down(config: pytest.Config, node: Any, text: str) -> None:
    """As xdist's controller, when a worker has ended: conftests and plugins take what it hands over."""
    hook = _of_xdist(config, "pytest_testnodedown")
    if hook is not None:
        if text:  # who handed over nothing, or died, has none
            node.workeroutput = ast.literal_eval(text)
        hook(node=node, error=None)


def refuse_debuggers() -> None:
    """A debugger would wait for somebody to type, and nobody can type into a worker."""

    def refuse(*_: object, **__: object) -> None:
        __tracebackhide__ = True
        item = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        pytest.fail(
            "breakpoint() and pdb need a terminal, and this worker has none. Run the test without Ondol: "
            f"pytest -p no:ondol {shlex.quote(item)}"
        )

    pytestPDB._init_pdb = refuse  # type: ignore[method-assign]


def share_log_file(config: pytest.Config) -> None:
    """Spawned workers add to the controller's --log-file: what it writes itself goes to the end too."""
    stream = getattr(_log_file_handler(config), "stream", None)
    if stream is not None:
        fcntl.fcntl(stream, fcntl.F_SETFL, fcntl.fcntl(stream, fcntl.F_GETFL) | os.O_APPEND)


@contextmanager
def unheard(config: pytest.Config) -> Iterator[None]:
    """While a file is collected again: what is logged, or written by the terminal's reporter, was there before."""
    root, handler, terminal = logging.getLogger(), _log_file_handler(config), Terminal(config)
    there, file = handler in root.handlers, terminal.file
    if there:
        root.removeHandler(handler)
    try:
        with open(os.devnull, "w") as terminal.file:
            yield
    finally:
        terminal.file = file
        if there:
            root.addHandler(handler)


def _log_file_handler(config: pytest.Config) -> Any:
    return getattr(config.pluginmanager.get_plugin("logging-plugin"), "log_file_handler", None)


def own_base_temp(config: pytest.Config, base: Path | None, name: str) -> None:
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is None or base is None:
        return
    own = base / name
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    factory._basetemp = own
    # Where pytest ≥ 9 keeps what clears away earlier runs' directories: the controller does that, once.
    factory._exit_stack = ExitStack()


def forget_exit_handlers() -> None:
    """Those of the controller: they would delete its files and end its servers from every fork."""
    atexit._clear()


def run_exit_handlers() -> None:
    """Those that the items registered here."""
    atexit._run_exitfuncs()


def reset_stop_flags(session: pytest.Session) -> None:
    """`-x` is the controller's decision; a failure here that is judged away must not stop this worker."""
    session.shouldfail = False
    session.shouldstop = False
    if session.config.getvalue("maxfail"):  # else fixtures may ask for it, to keep what a failure left
        session.testsfailed = 0


def teardown_to(session: pytest.Session, item: pytest.Item | None, blamed: pytest.Item) -> pytest.TestReport | None:
    """Tear down what `item` does not need; a report against `blamed`, with what was printed, when that goes wrong."""

    def tear_down() -> None:
        manager = session.config.pluginmanager.get_plugin("capturemanager")
        captured = manager.item_capture("teardown", blamed) if isinstance(manager, CaptureManager) else nullcontext()
        with captured:
            session._setupstate.teardown_exact(item)

    return late(blamed, tear_down)


def late(blamed: pytest.Item, what: Callable[[], None]) -> pytest.TestReport | None:
    """Do what comes after its last item; a report against that when it goes wrong."""
    call = CallInfo.from_call(what, when="teardown", reraise=(pytest.exit.Exception,))
    if call.excinfo is None:
        return None
    report: pytest.TestReport = blamed.ihook.pytest_runtest_makereport(item=blamed, call=call)
    return report


class Anything(pytest.Item):
    """Stands for the item that may follow: torn down for it, everything but the last item itself stays open."""

    def runtest(self) -> None:
        raise AssertionError("nobody runs this")


def sibling(session: pytest.Session, item: pytest.Item) -> pytest.Item:
    """An item that needs all that `item` shares with others; a real one of its parent where there is one."""
    place = session.items.index(item) if item in session.items else 0
    near = session.items[max(0, place - 1) : place + 2]
    real = [other for other in near if other is not item and other.parent is item.parent]
    return real[0] if real else Anything.from_parent(item.parent or session, name="anything")


def wide_params(item: pytest.Item) -> str:
    """The parameters of its fixtures that outlive a module; pytest orders items by them, so that each is made once."""
    spec = getattr(item, "callspec", None)
    scopes = getattr(spec, "_arg2scope", {})
    wide = [name for name, scope in scopes.items() if scope.value in {"session", "package"}]
    return ",".join(f"{name}{spec.indices[name]}" for name in sorted(wide)) if spec is not None else ""


def stack_fits(session: pytest.Session, item: pytest.Item | None) -> bool:
    """Everything that is set up is needed by `item` too."""
    stack = session._setupstate.stack
    needed = item.listchain() if item is not None else []
    return list(stack) == needed[: len(stack)]


def _workerinput(env: dict[str, str]) -> dict[str, Any]:
    return {
        "workerid": env[xdist.WORKER],
        "workercount": int(env[xdist.COUNT]),
        "testrunuid": env[xdist.UID],
        "mainargv": sys.argv,
    }


def be_xdist_worker(config: pytest.Config, env: dict[str, str]) -> None:
    """What plugins and suites look at to keep the workers' databases, ports and files apart."""
    if xdist.WORKER in env and not hasattr(config, "workerinput"):
        given = ast.literal_eval(env.pop(INPUT)) if INPUT in env else {}
        os.environ.pop(INPUT, None)
        config.workerinput = {**_workerinput(env), **given}  # type: ignore[attr-defined]
        config.workeroutput = {}  # type: ignore[attr-defined]
        config.option.dist = "no"


def plugins_timeout(item: pytest.Item) -> float | None:
    """What pytest-timeout would do, by marker, option, variable or ini file; 0 = never, None = nobody said."""
    import pytest_timeout  # type: ignore[import-untyped]

    found = pytest_timeout._get_item_settings(item).timeout
    return None if found is None else float(found)


def save_coverage(config: pytest.Config) -> None:
    """pytest-cov in the controller combines what its forks leave beside its own data file."""
    plugin = config.pluginmanager.get_plugin("_cov")
    controller = getattr(plugin, "cov_controller", None)
    coverage = getattr(controller, "cov", None)
    if coverage is not None:
        coverage.stop()
        coverage.save()


#: Attributes of a report that everybody knows who has its item, or was told once.
_OF_ITEM = ("_id", "nodeid", "location", "keywords")


def report_to_wire(
    config: pytest.Config, report: pytest.TestReport, before: pytest.TestReport | None = None
) -> dict[str, Any]:
    """`before`: an earlier report of the same item; what that one has told of the item need not be told again."""
    data = _plain(config, report, before)
    if data is None:
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
    assert data is not None
    counts = _failed_subtests(config)
    if counts:
        data[SUBTESTS] = counts.get(getattr(report, "id", report.nodeid), 0)
    if measured := _take_benchmarks(config):
        data[BENCHMARKS] = measured
    return data


def _plain(config: pytest.Config, report: pytest.TestReport, before: pytest.TestReport | None) -> dict[str, Any] | None:
    """A good report without what its item says anyway; None where only pytest, or a plugin, can say what it holds."""
    hook = config.hook.pytest_report_to_serializable
    known = all(impl.function.__module__.startswith("_pytest.") for impl in hook.get_hookimpls())
    if type(report) is not pytest.TestReport or report.longrepr is not None or not known:
        return None
    data = {name: value for name, value in vars(report).items() if name not in _OF_ITEM}
    if any(isinstance(value, os.PathLike) for value in data.values()):
        return None
    for name in ("longrepr", "sections", "user_properties"):
        if not data[name]:
            del data[name]
    if before is None or report.location != before.location:
        data["location"] = report.location
    if before is None or report.keywords != before.keywords:
        data["keywords"] = list(report.keywords)
    return data


def reports_from_wire(item: pytest.Item, reports: Sequence[dict[str, Any]]) -> list[pytest.TestReport]:
    """Those of one attempt."""
    known: dict[str, Any] = {}
    found = []
    for data in reports:
        if "location" in data:
            known["location"] = tuple(data["location"])
        if "keywords" in data:
            known["keywords"] = dict.fromkeys(map(once, data["keywords"]), 1)
        found.append(report_from_wire(item, {**data, **known}))
    return found


def report_from_wire(item: pytest.Item, data: dict[str, Any]) -> pytest.TestReport:
    """JSON has no tuples; reporters look at some of these with isinstance."""
    data, config = dict(data), item.config
    subtests, stop = data.pop(SUBTESTS, 0), data.pop(STOP, "")
    if stop:
        item.session.shouldstop = stop
    _bring_benchmarks_home(config, data.pop(BENCHMARKS, []))
    data["location"] = tuple(data["location"])
    if isinstance(data.get("longrepr"), list):
        data["longrepr"] = tuple(data["longrepr"])
    for name in ("sections", "user_properties"):
        data[name] = [tuple(pair) for pair in data.get(name, ())]
    report: pytest.TestReport
    if "nodeid" in data:
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
    else:
        # Where it is defined, the worker has found out; asked here, every item would look for its file once more.
        vars(item).setdefault("location", data["location"])
        report = pytest.TestReport(nodeid=getattr(item, "id", item.nodeid), longrepr=None, **data)
    if subtests:
        _failed_subtests(config)[getattr(report, "id", report.nodeid)] = subtests
    return report


def let_benchmarks_measure(config: pytest.Config) -> None:
    """pytest-benchmark measures nothing in a worker of xdist, whose workers share everything: ours have a device."""
    session: Any = getattr(config, "_benchmarksession", None)
    if getattr(session, "xdist_warning", False):
        session.disabled = session.xdist_warning = False


def _take_benchmarks(config: pytest.Config) -> list[dict[str, Any]]:
    """pytest-benchmark keeps its results in the process: they leave with the report of their test, as plain values."""
    found: list[Any] = getattr(getattr(config, "_benchmarksession", None), "benchmarks", None) or []
    taken = []
    for one in found:
        plain = {name: value for name, value in one.options.items() if isinstance(value, (bool, int, float, str))}
        measured = {"data": list(one.stats.data), "iterations": one.iterations, "failed": one.has_error}
        taken.append({**{name: getattr(one, name) for name in _MEASURED}, **measured, "options": plain})
    found.clear()
    return taken


def _bring_benchmarks_home(config: pytest.Config, taken: list[dict[str, Any]]) -> None:
    """As if measured here. A test that was tried again counts with its last attempt."""
    session = getattr(config, "_benchmarksession", None)
    if session is None or not taken:
        return
    from pytest_benchmark.stats import Metadata

    for one in taken:
        told = {name: one[name] for name in _MEASURED}
        fixture = SimpleNamespace(cprofile_stats=None, has_error=one["failed"], **told)
        made = Metadata(fixture, one["iterations"], {**session.options, **one["options"]})
        for seconds in one["data"]:
            made.stats.update(seconds)
        session.benchmarks = [other for other in session.benchmarks if other.fullname != made.fullname] + [made]


def _failed_subtests(config: pytest.Config) -> Any:
    """Where pytest ≥ 9 counts failed subtests: it fails their test by that count, wherever it reports."""
    try:
        from _pytest.subtests import failed_subtests_key
    except ImportError:
        return {}
    return config.stash.get(failed_subtests_key, {})


class CutOff:
    """The failure of an item that was cut off: short on the terminal, which shows its sections beside it, and with
    everything in files, whose writers (`--junitxml`, `--report-log`) take the text of a failure and nothing else.
    """

    def __init__(self, item: pytest.Item, short: str, sections: list[tuple[str, str]]) -> None:
        path, line, _ = item.location
        self.reprcrash = ReprFileLocation(path, (line or 0) + 1, short)
        self._short = short
        self._sections = sections

    def toterminal(self, writer: Any) -> None:
        writer.line(self._short)

    def __str__(self) -> str:
        return "\n".join([self._short, *(f"----- {name} -----\n{text}" for name, text in self._sections)])


def add_suite_property(config: pytest.Config, name: str, value: str) -> None:
    """To `--junitxml`, if it was asked for."""
    xml = config.stash.get(xml_key, None)
    if xml is not None:
        xml.add_global_property(name, value)


class Unfinished:
    """Allure writes an item's result in the process that runs it. For an item that never came to its end there, the
    item's hooks are gone through here, for Allure alone, with the report that was made instead.
    """

    def __init__(self, item: pytest.Item, report: pytest.TestReport) -> None:
        self._item = item
        self._report = report

    def tell(self) -> None:
        manager = self._item.config.pluginmanager
        listeners = [p for p in manager.get_plugins() if type(p).__module__ == "allure_pytest.listener"]
        if listeners:
            manager.register(self)
            try:
                self._hook("pytest_runtest_protocol", nextitem=None)
            finally:
                manager.unregister(self)

    def _hook(self, name: str, **arguments: Any) -> None:
        manager = self._item.config.pluginmanager
        heard = ("allure_pytest.listener", __name__)
        others = [p for p in manager.get_plugins() if type(p).__module__ not in heard]
        manager.subset_hook_caller(name, others)(item=self._item, **arguments)

    def pytest_runtest_protocol(self) -> bool:
        def end() -> None:
            raise RuntimeError(self._report.longreprtext)

        self._hook("pytest_runtest_setup")
        self._hook("pytest_runtest_makereport", call=CallInfo.from_call(end, when="setup"))
        self._hook("pytest_runtest_teardown", nextitem=None)
        return True

    def pytest_runtest_makereport(self) -> pytest.TestReport:
        """As of its setup: the phase that Allure believes without having seen another."""
        told = copy.copy(self._report)
        told.when = "setup"
        return told


def warning_to_wire(message: warnings.WarningMessage, when: str, nodeid: str, location: Any) -> dict[str, Any]:
    category = message.category
    return {
        "text": str(message.message),
        "category": [category.__module__, category.__qualname__],
        "filename": message.filename,
        "lineno": message.lineno,
        "when": when,
        "nodeid": nodeid,
        "location": list(location) if location else None,
    }


def warning_from_wire(data: dict[str, Any]) -> dict[str, Any]:
    """Arguments for `pytest_warning_recorded`."""
    import importlib

    module, name = data["category"]
    try:
        category = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        category = UserWarning
    message = warnings.WarningMessage(data["text"], category, data["filename"], data["lineno"])
    location = tuple(data["location"]) if data["location"] else None
    return {"warning_message": message, "when": data["when"], "nodeid": data["nodeid"], "location": location}


def remember_as_failed(config: pytest.Config, nodeid: str) -> None:
    """For `--lf`: an item of which there is no report. A second pass that left it out could end green without it."""
    plugin = config.pluginmanager.get_plugin("lfplugin")
    if plugin is not None:
        plugin.lastfailed[nodeid] = True
