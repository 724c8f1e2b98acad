"""Results of the run, replayed through pytest's hooks, so that every reporter sees them as if pytest had run them."""

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from ondol.fleet import pytest_inside, xdist
from ondol.fleet.outcome import of_reports
from ondol.fleet.record import STREAMS, AttemptRecord, ItemRecord, RunRecord
from ondol.fleet.verdict import INCOMPLETE, Final, Verdict
from ondol.report.attempt_logs import AttemptLogs
from ondol.report.listeners import Listeners
from ondol.report.run_live import LiveView

WORDS = {
    Verdict.CRASHED: ("C", "CRASHED"),
    Verdict.TIMEOUT: ("T", "TIMEOUT"),
    Verdict.CACHE_FAULT: ("K", "CACHE FAULT"),
}


class XdistNode:
    """A worker as reporters know it from xdist: results that have one are shown with its name instead of their file."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.workerinfo = {"id": name, "version": sys.version, "version_info": tuple(sys.version_info)}
        self.workerinfo |= {"sysplatform": sys.platform, "executable": sys.executable, "cwd": os.getcwd()}


class PytestShow:
    """What a controller shows, in pytest's terms."""

    def __init__(
        self,
        session: pytest.Session,
        live: LiveView | None,
        note: Callable[[str], object],
        muted: dict[int, str],
    ) -> None:
        self.session = session
        self._note = note
        self._listeners = Listeners(session.config, note)
        #: Item → why its failure turns nothing red.
        self._muted = muted
        self.config = session.config
        self.live = live
        self._logs = AttemptLogs(session.config.getoption("ondol_log_dir"), [i.nodeid for i in session.items])
        self._name: Callable[[str], str] | None = None
        self._nodes: dict[str, XdistNode] = {}
        #: By name of worker.
        self._given: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        self._outputs: dict[str, list[str]] = {}
        self._uid = ""
        self._waiting = ""

    def name_workers(self, name: Callable[[str], str], uid: str) -> None:
        """Results of several workers come mixed: a file's name before each of them would fill the log."""
        self._name, self._uid = name, uid
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False

    def moved(self, record: RunRecord) -> None:
        if self.live is not None:
            self.live.moved(record)
            return
        what, terminal = record.waiting.get(record.engine, ""), self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and what not in {"", self._waiting}:
            # At once: a queue may take hours, and the log would be silent.
            self._waiting = what
            terminal.ensure_newline()
            terminal.write_line(f"ondol: waiting for {what}")

    def wants_to_stop(self) -> str:
        return str(self.session.shouldfail or self.session.shouldstop or "")

    def warning(self, data: dict[str, Any]) -> None:
        self.config.hook.pytest_warning_recorded.call_historic(kwargs=pytest_inside.warning_from_wire(data))

    def given(self, env: dict[str, str]) -> dict[str, str]:
        """Variables with what conftests and plugins that know xdist have for the worker with these."""
        worker = env[xdist.WORKER]
        if worker not in self._given:
            self._given[worker] = env, pytest_inside.configure_node(self.config, self._node(worker), env)
        return self._given[worker][1]

    def output(self, worker: str, text: str) -> None:
        self._outputs.setdefault(worker, []).append(text)

    def end(self) -> None:
        """A name belongs to a place: nothing is cleared away before the end. Of a place that had several workers each
        hands something over, and hooks come in pairs: what is dropped for each of them is made for each of them.
        """
        for worker, (env, given) in self._given.items():
            node = self._node(worker)
            for number, text in enumerate(self._outputs.get(worker) or ([""] if given else [])):
                if number:
                    pytest_inside.configure_node(self.config, node := XdistNode(worker), env)
                pytest_inside.node_down(self.config, node, text)

    def _node(self, worker: str) -> XdistNode:
        return self._nodes.get(worker) or self._nodes.setdefault(worker, XdistNode(worker))

    def late(self, item: int, report: dict[str, Any]) -> None:
        self._log(item, pytest_inside.report_from_wire(self.session.items[item], report))
        _into_its_test_case(self.config)

    def late_death(self, item: int, why: str) -> None:
        node = self.session.items[item]
        self._log(item, _made(node, "teardown", f"crashed: {why}", 0.0))
        _into_its_test_case(self.config)

    def _log(self, item: int, report: pytest.TestReport) -> None:
        """A muted failure is told as every reporter, also of others, knows one that is expected."""
        if report.failed and item in self._muted:
            report.outcome = "skipped"
            report.wasxfail = report.ondol_known = self._muted[item]  # type: ignore[attr-defined]
        self._listeners.tell(self.session.items[item], "pytest_runtest_logreport", report=report)

    def result(self, number: int, item: ItemRecord) -> None:
        if trouble := self._logs.write(number, item):
            self._note(trouble)
        if item.verdict not in INCOMPLETE:  # pytest has no word for it: summary, journal and exit status have
            self._replay(number, item)
        elif item.verdict == Verdict.DEVICE_LOST.value:
            pytest_inside.remember_as_failed(self.config, item.nodeid)

    def _replay(self, number: int, item: ItemRecord) -> None:
        node = self.session.items[number]
        last = self._reports(node, item)  # first: they know the location
        silent = pytest_inside.announces_each_item(self.config) if self._name else ()
        which: dict[str, Any] = {"nodeid": node.nodeid, "location": node.location}
        self._listeners.tell(node, "pytest_runtest_logstart", silent, **which)
        earlier = [_earlier(node, attempt) for attempt in item.attempts[:-1]]
        properties, final = _properties(item), _final(item.verdict, item.flaky, item.why)
        for report in last:
            report.user_properties = [*report.user_properties, *properties]
            report.ondol_final = final  # type: ignore[attr-defined]
        for report in (*earlier, *last):
            if item.attempts:
                # By the last one's worker: for pytest's JUnit file another worker's report is another test case.
                self._sign(report, number, item.attempts[-1])
            self._log(number, report)
        self._listeners.tell(node, "pytest_runtest_logfinish", **which)

    def _sign(self, report: Any, number: int, attempt: AttemptRecord) -> None:
        """With the attributes that xdist gives to the reports of its workers."""
        if self._name is not None:
            name = report.worker_id = self._name(attempt.slot)
            report.node = self._node(name)
            report.testrun_uid, report.item_index = self._uid, number

    def _reports(self, node: pytest.Item, item: ItemRecord) -> list[pytest.TestReport]:
        if not item.attempts:
            return _completed(node, [_made(node, "setup", item.why, 0.0)])
        last = item.attempts[-1]
        # A cache's fault is told by the item's own failure, under another name.
        told = of_reports(last.reports).value == item.verdict or item.verdict == Verdict.CACHE_FAULT.value
        found = pytest_inside.reports_from_wire(node, last.reports)
        if last.reports and told and not last.phase:
            return found
        # Without any report its preparation failed: it never came to its teardown.
        phase = last.phase or ("teardown" if last.reports else "setup")
        # An item is shown once: what failed before its worker was gone stands in the report about its end.
        kept = [report for report in found if report.when != phase and not report.failed]
        untold = last.text and not any(report.failed for report in found)
        text = last.text if untold else (item.why or last.reason)
        made = _made(node, phase, "", max(0.0, last.seconds - sum(report.duration for report in kept)))
        made.sections += [(f"Failure in {r.when} before", r.longreprtext) for r in found if r.failed]
        if last.phase:
            made.sections += [(f"Captured {n} until then", last.output[n]) for n in STREAMS if n in last.output]
        if last.dump:
            made.sections.append(("Stacks", last.dump))
        failure: Any = pytest_inside.CutOff(node, f"{item.verdict}: {text}", made.sections)
        made.longrepr = failure
        if last.phase:
            pytest_inside.Unfinished(node, made).tell()
        return _completed(node, [*kept, made])


def _earlier(node: pytest.Item, attempt: AttemptRecord) -> pytest.TestReport:
    """An attempt that was not the last: visible, and counted as what it is."""
    what = attempt.reason or attempt.outcome
    report = _made(node, "call", f"attempt {attempt.number} on {attempt.device or 'cpu'}: {what}", attempt.seconds)
    report.outcome = "rerun"  # type: ignore[assignment]
    return report


def _completed(node: pytest.Item, reports: list[pytest.TestReport]) -> list[pytest.TestReport]:
    """Reporters close an item at its teardown, with the output and properties of that report: one always comes."""
    if reports[-1].when != "teardown":
        over = _made(node, "teardown", "", 0.0)
        over.outcome, over.longrepr, over.sections = "passed", None, list(reports[-1].sections)
        reports.append(over)
    return reports


def _made(node: pytest.Item, when: Any, text: str, seconds: float) -> pytest.TestReport:
    """A report that no worker could send."""
    return pytest.TestReport(
        nodeid=node.nodeid,
        location=node.location,
        keywords=dict.fromkeys(node.keywords, 1),
        outcome="failed",
        longrepr=text,
        when=when,
        duration=seconds,
    )


# Thousands of items have the same ones, and pytest keeps their reports to its end.
_final = lru_cache(256)(lambda verdict, flaky, why: Final(Verdict(verdict), flaky, why))
_place = lru_cache(256)(lambda device, worker: (("ondol_device", device or "cpu"), ("ondol_worker", worker)))


def _properties(item: ItemRecord) -> list[tuple[str, object]]:
    if not item.attempts:
        return []
    last = item.attempts[-1]
    found: list[tuple[str, object]] = [*_place(last.device, last.worker)]
    if len(item.attempts) > 1:
        found.append(("ondol_attempts", len(item.attempts)))
    if item.why:
        found.append(("ondol_reason", item.why))
    return found


def status_of(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """pytest's category, letter and word, where ours differ."""
    if getattr(report, "outcome", "") == "rerun":
        return "rerun", "R", "RERUN"
    if hasattr(report, "ondol_known"):
        return "known", "k", "KNOWN"
    final: Final | None = getattr(report, "ondol_final", None)
    if final is None:
        return None
    if final.verdict in WORDS and report.failed:
        letter, word = WORDS[final.verdict]
        return ("failed" if report.when == "call" else "error"), letter, word
    if final.flaky and report.when == "call" and report.passed:
        return "flaky", "Y", "FLAKY"
    return None


def _into_its_test_case(config: pytest.Config) -> None:
    """pytest's JUnit file closes an item's test case with its teardown. What came after it opened one that has nothing
    but an error, and a reader would count the item twice, as good and as bad.
    """
    for xml in [plugin for plugin in config.pluginmanager.get_plugins() if type(plugin).__name__ == "LogXML"]:
        *cases, late = [case.to_xml() for case in xml.node_reporters_ordered]
        own = [case for case in cases if all(case.get(key) == late.get(key) for key in ("classname", "name"))]
        if own and own[-1].find("failure") is None and own[-1].find("error") is None:
            for error in late.findall("error"):
                own[-1].insert(len(own[-1].findall("properties")), error)  # in the order that the format wants
            xml.node_reporters_ordered.pop()
