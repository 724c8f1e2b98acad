"""The inside of a worker: run what is sent, stream what happens, look after itself, and leave.

It decides nothing about retries, deadlines or verdicts: those belong to processes that a test cannot kill.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ondol.fleet import hooks_in_workers, known_leftovers, messages, pytest_inside, xdist
from ondol.fleet.board import Given
from ondol.fleet.messages import Done, FromWorker, Message, RunItem, as_block, to_json
from ondol.fleet.starts import SECTION_LIMIT, Place
from ondol.fleet.wire import Channel
from ondol.fleet.worker import hygiene, prepared
from ondol.host import proctree
from ondol.host.gpu_context import cuda_fault
from ondol.host.killing import DUMP_SIGNAL

_NAME = "ondol-worker"
DEVICE_KEY = pytest.StashKey["Place"]()


#: Index and node id of an item → the item; a spawned worker collects its file first.
Lookup = Callable[[int, str], pytest.Item]


def settle_in(dump_fd: int) -> None:
    """The process itself: what it shows when asked, and how it ends."""
    # A test that forks twice must not escape: its orphans become ours, and ours are ended with us.
    proctree.become_subreaper()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable(file=dump_fd, all_threads=True)
    show_stacks_when_asked(dump_fd)
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"500")  # out of memory, the kernel should choose the test and not the supervisor


def show_stacks_when_asked(dump_fd: int) -> None:
    """Again for each item: fixtures that put back every signal's handler (Lightning) take away those of C, too."""
    faulthandler.unregister(DUMP_SIGNAL)
    faulthandler.register(DUMP_SIGNAL, file=dump_fd, all_threads=True, chain=False)


def move_in(place: Place) -> None:
    """From now on its environment is that of the place, whatever a conftest that knows xdist made of it."""
    os.environ.update(place.env)
    os.environ["TMPDIR"] = place.tmpdir
    tempfile.tempdir = place.tmpdir  # made for us: there is no need to try it out


class WorkerPlugin:
    """Listens to pytest in the worker."""

    worker: Worker
    serving = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.worker.enter("setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        self.worker.enter("call")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self.worker.enter("teardown")

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Any) -> bool | None:
        """pytest-timeout's thread ends the whole process: the agent, which has the same deadline, ends the item."""
        return True if settings.method == "thread" else None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.worker.send_report(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """What a wider fixture makes outlives the item by design."""
        baseline = self.worker.baseline
        if fixturedef.scope == "function" or baseline is None:
            return (yield)
        before = hygiene.take()
        try:
            return (yield)
        finally:
            self.worker.baseline = hygiene.absorb(baseline, before, hygiene.take())

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if fixturedef.scope != "function":
            self.worker.finished_wide = True

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if when == "collect" or not self.serving:
            return  # the controller has collected too, and whoever begins to listen is told everything again
        data = pytest_inside.warning_to_wire(warning_message, when, nodeid, location)
        self.worker.warn(data)


class Unheard:
    """Around hooks that are called once more where results are shown: what they print there is enough."""

    def __init__(self) -> None:
        self._nowhere = open(os.devnull, "w")

    def _silence(self) -> Generator[None]:
        streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self._nowhere
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None]:
        yield from self._silence()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None]:
        yield from self._silence()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logfinish(self) -> Generator[None]:
        yield from self._silence()


class Worker:
    """One warm process, from `hello` to `bye`."""

    def __init__(self, session: pytest.Session, lookup: Lookup, given: Given, forked: bool = True) -> None:
        self.session = session
        self.forked = forked
        self.config = session.config
        self.lookup = lookup
        self.channel, self.lane, self.place, self.board = given.channel, given.lane, given.place, given.board
        self._dump = given.dump
        self.baseline: hygiene.Snapshot | None = None
        self._before: hygiene.Snapshot | None = None
        self.finished_wide = False
        self._any_failed = False
        self.ran = 0
        self._pid = os.getpid()
        self._current: RunItem | None = None
        self._previous: pytest.Item | None = None
        self._held: list[bytes] = []
        #: The id of the item that runs, and its last report.
        self._running = ""
        self._reported: pytest.TestReport | None = None
        self._libraries = hygiene.Libraries()
        self.config.stash[DEVICE_KEY] = self.place
        if hooks_in_workers.others_listen(self.config):
            self.config.pluginmanager.register(Unheard())
        pytest_inside.be_xdist_worker(self.config, self.place.env)
        self._plugin = listen(self.config)
        self._plugin.worker = self

    def send(self, message: FromWorker) -> None:
        self._be_ourselves()
        self.channel.send(message)

    def enter(self, phase: str) -> None:
        self._be_ourselves()
        self.board.enter(phase, time.monotonic())

    def _be_ourselves(self) -> None:
        if os.getpid() != self._pid:
            # A test forked and its child came back out of the test: it must not report as us.
            os._exit(0)

    def warn(self, data: dict[str, Any]) -> None:
        item, attempt = (self._current.item, self._current.attempt) if self._current else (None, None)
        self.send(messages.Warned(item, attempt, data))

    def send_report(self, report: pytest.TestReport) -> None:
        """It waits for the end of its item: every message wakes three processes. On the board it outlives us."""
        self._be_ourselves()
        if report.nodeid != self._running and any(one.nodeid == report.nodeid for one in self.session.items):
            return  # of an item that somebody had put off, and that has its verdict: this one must not be blamed for it
        self._any_failed |= report.failed
        report.sections = [(name, shorten(text)) for name, text in report.sections]
        data = pytest_inside.report_to_wire(self.config, report, self._reported)
        if self.session.shouldstop:  # set by a conftest: `-x`, which sets the other one, is not ours
            data[pytest_inside.STOP] = str(self.session.shouldstop)
        self._reported = report
        if report.failed:
            data["longrepr"] = bounded(data["longrepr"])
        self._held.append(to_json(data).encode())
        self.board.add(self._held[-1])

    def _take_held(self) -> bytes:
        held, self._held = as_block(self._held), []
        self.board.clear()
        return held

    # ------------------------------------------------------------------ the loop

    def serve(self) -> None:
        """Until told to end, or until the agent is gone."""
        self._plugin.serving = True
        self.channel.send(messages.Hello())
        ahead: RunItem | None = None
        while True:
            message = ahead or self._next()
            if isinstance(message, messages.Clear):
                with suppress(LookupError):  # said when it is to be run
                    self._leave_the_previous_for(self.lookup(message.target, message.nodeid))
                self.channel.send(messages.Cleared())
                continue
            if not isinstance(message, RunItem):
                break
            ahead = self._run(message)
            if message.last:
                break
        self.leave()

    def _next(self) -> Message | None:
        try:
            self.board.waits()
            message = self.channel.receive()
            self.board.hears()
            return message
        except KeyboardInterrupt:
            return None

    def _run(self, message: RunItem) -> RunItem | None:
        """Returns what was handed ahead and is begun now: said with the end of this one, so that nobody must guess."""
        try:
            item = self.lookup(message.target, message.nodeid)
        except LookupError as error:
            self._current = message
            self.send(Done(message.item, message.attempt, self.ran, escaped=str(error)))
            return None
        if message.prepare:
            self._prepare(item, message)
            return None
        self._leave_the_previous_for(item)
        self._current, self._running = message, item.nodeid
        item.ondol_prepared = message.prepared  # type: ignore[attr-defined]
        pytest_inside.reset_stop_flags(self.session)
        show_stacks_when_asked(self._dump)
        self.baseline = self._before or (hygiene.take() if self._must_be_clean(message) else None)
        self.finished_wide, self._reported = False, None
        done = self._protocol(item, self._follower(item, message), Done(message.item, message.attempt, self.ran + 1))
        self._previous = item
        self.ran += 1
        dirt = self._look_around()
        fault = self._device_fault(item)
        if getattr(item, "ondol_open_failed", False):
            done = done._replace(fault="runtime-open")
        done = done._replace(dirt=dirt, poison=fault)
        self.enter("")  # first: a fork that came out of the item must take nothing
        ahead = self.lane.take() if done.well and not message.last else None
        if not isinstance(ahead, RunItem):
            ahead = None
        at = self.board.since
        _show_what_was_printed()
        self.send(done._replace(begins=ahead.item if ahead else None, block=self._take_held(), at=at))
        return ahead

    def _must_be_clean(self, message: RunItem) -> bool:
        """An item with a process of its own leaves nothing to anybody: only who fails dirty items wants to know."""
        return self.place.hygiene == "fail" or (self.place.hygiene != "off" and not message.last)

    def _prepare(self, item: pytest.Item, message: RunItem) -> None:
        """A task's preparation: no device, no fixtures, and its failure is its own task's."""
        self._current = message
        self.ran += 1
        done = Done(message.item, message.attempt, self.ran)
        try:
            done = done._replace(prepared=prepared.pack(item.name, item.ondol_prepare()))  # type: ignore[attr-defined]
        except prepared.Unsendable as error:
            done = done._replace(escaped=str(error))
        except BaseException:
            done = done._replace(escaped=traceback.format_exc())
        self.send(done)

    def _protocol(self, item: pytest.Item, follower: pytest.Item | None, done: Done) -> Done:
        """Run the item through pytest's own protocol; anything that escapes it is reported, not raised."""
        try:
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=follower)
        except pytest.exit.Exception as stop:
            return done._replace(exit=[str(stop.msg), stop.returncode])
        except KeyboardInterrupt:
            return done._replace(escaped="KeyboardInterrupt")
        except BaseException:
            return done._replace(escaped=traceback.format_exc())
        return done

    def _follower(self, item: pytest.Item, message: RunItem) -> pytest.Item | None:
        if message.hint is not None:
            return self.lookup(message.hint, message.hint_nodeid)
        return pytest_inside.sibling(self.session, item) if message.more else None

    def _leave_the_previous_for(self, item: pytest.Item | None) -> None:
        """The hint was wrong, or nothing follows: tear down what only the previous items needed."""
        if self._previous is None:
            return
        if pytest_inside.stack_fits(self.session, item):
            return
        self._before = None
        self._send_late(pytest_inside.teardown_to(self.session, item, self._previous))

    def _send_late(self, report: pytest.TestReport | None) -> None:
        if report is not None:
            assert self._current is not None
            self.send(messages.LateReport(self._current.item, pytest_inside.report_to_wire(self.config, report)))

    # ------------------------------------------------------------------ after an item

    def _look_around(self) -> list[hygiene.Dirt]:
        before, self.baseline, self._before = self.baseline, None, None
        if before is None:
            return []
        after = hygiene.take()
        dirt = hygiene.compare(before, after, finished_wide=self.finished_wide)
        dirt += [
            hygiene.Dirt("stale library", f"{path} was replaced under a mapping") for path in self._libraries.stale()
        ]
        dirt += hygiene.mend(before, self.place.tmpdir)
        # Nothing but the worker runs between two items: what is normal now is normal at the next one's start.
        self._before = None if dirt else after
        return dirt

    def _device_fault(self, item: pytest.Item) -> str | None:
        fault: str | None = self.config.hook.pytest_ondol_device_fault(item=item)
        return fault or cuda_fault(hygiene.loaded_libraries_counter())

    def _finish_session(self) -> None:
        def finish() -> None:
            hooks_in_workers.finish_session(self.session, int(self._any_failed), self.forked)
            if text := pytest_inside.output_to_wire(self.config):
                self.send(messages.Output(self.place.env.get(xdist.WORKER, self.place.name), text))

        if self._previous is not None:
            self._send_late(pytest_inside.late(self._previous, finish))

    def leave(self) -> None:
        """Finish fixtures, save coverage, run the exit handlers that items registered. Never returns."""
        status = 0
        try:
            self._leave_the_previous_for(None)
            self._finish_session()
            _show_what_was_printed()
            pytest_inside.save_coverage(self.config)
            self.channel.send(messages.Left())
            pytest_inside.run_exit_handlers()
        except BaseException:
            status = 70
        os._exit(status)


def _show_what_was_printed() -> None:
    """Past the capture, by `capsys.disabled()` or a hook: after the controller's last line it would be nobody's."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()


def bounded(value: Any) -> Any:
    """A failure's text with the same limit: an assertion about 50 MB would travel through three processes."""
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, dict):
        return {name: bounded(one) for name, one in value.items()}
    return [bounded(one) for one in value] if isinstance(value, list | tuple) else value


def shorten(text: str) -> str:
    if len(text) <= SECTION_LIMIT:
        return text
    head, tail = SECTION_LIMIT // 4, SECTION_LIMIT * 3 // 4
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def be_quiet(config: pytest.Config) -> None:
    """No fork shows, writes or ends what is the controller's. Done in the agent, no worker need do it again."""
    if not config.pluginmanager.hasplugin(_NAME):
        pytest_inside.forget_exit_handlers()
        pytest_inside.silence_terminal(config)
        hooks_in_workers.unregister_reporters(config)
        listen(config)


def listen(config: pytest.Config) -> WorkerPlugin:
    """What a worker listens with: as little as possible is left to be done after the fork, where each write copies."""
    plugin: WorkerPlugin | None = config.pluginmanager.get_plugin(_NAME)
    if plugin is None:
        pytest_inside.refuse_debuggers()
        plugin = WorkerPlugin()
        config.pluginmanager.register(plugin, _NAME)
    return plugin


def begin_in_fork(session: pytest.Session, base: Path | None, given: Given) -> None:
    """The rest of a forked worker's life. Never returns."""
    try:
        settle_in(given.dump)
        move_in(given.place)
        no_terminal()
        known_leftovers.make_again()
        be_quiet(session.config)
        pytest_inside.own_base_temp(session.config, base, given.place.name)
        # First of all: the agent reads nothing else before it has them.
        send_capture_files(given.channel, pytest_inside.own_capture(session.config))
        Worker(session, lambda index, _: session.items[index], given).serve()
    except BaseException:
        faulthandler.disable()
        try:
            given.channel.send(messages.Broken(given.place.name, traceback.format_exc()))
        except OSError:
            pass
    os._exit(71)


def no_terminal() -> None:
    """Our group is not the terminal's: who reads from it is stopped by the kernel until its deadline."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def send_capture_files(channel: Channel, fds: list[int]) -> None:
    """Hand duplicates to the agent: it can still read what we printed when we are dead."""
    import socket

    socket.send_fds(channel.sock, [b"F"], fds[:2])
    for fd in fds:
        os.close(fd)
