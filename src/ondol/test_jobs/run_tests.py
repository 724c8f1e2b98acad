"""`ondol test`: pytest with the plugin, in a room, watched from outside.

The front exists for what a plugin cannot survive: a crash or a hang *during collection*, and the death of the
controller itself. A file that ends the collecting process is named and left out as a collection error; whatever the
run leaves behind is adopted and ended; and when the controller dies, its journal is rendered.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ondol import exitcodes
from ondol.fleet.journal import CollectionFault, Event, Journal, of_run
from ondol.fleet.messages import NodeRoom
from ondol.fleet.record import RunRecord, load
from ondol.fleet.starts import UnderFront, as_environment
from ondol.host import bounded, fixed_place, killing, own_python, proctree
from ondol.job_report import JobReport
from ondol.report import run_markdown

Environment = dict[str, str]

MAX_FATAL_FILES = 20
PYTEST_INTERNAL_ERROR = 3
#: Words with which pytest answers and runs nothing.
_ONLY_ASKED = {"-h", "--help", "-V", "-VV", "--version", "--markers"}


@dataclass
class Request:
    """One `ondol test`."""

    arguments: list[str]
    journal: Path
    collect_timeout: float = 600.0
    fatal: list[str] = field(default_factory=list)


def run(request: Request, environment: Environment, through: Sequence[str] = ()) -> int:
    """Run pytest, with this environment for it and its workers, to its end, whatever happens; returns the status.

    `through`: words that start it, if it cannot simply be started (`host/fixed_place`).
    """
    proctree.become_subreaper()
    with _signals() as (forward, sent):
        while True:
            watch = _Watch(request, environment, through)
            forward.append(watch.process.pid)
            status = watch.wait()
            forward.clear()
            end_leftovers()
            record = watch.record()
            if os.WIFEXITED(status) and (record.complete or _never_began(request, record, os.WEXITSTATUS(status))):
                return os.WEXITSTATUS(status)
            if sent and os.WIFSIGNALED(status) and not record.planned:
                return 128 + os.WTERMSIG(status)  # no file's fault
            # Whatever its status says, nobody has accounted for the items.
            culprit, how = record.collecting, watch.why or killing.say_status(status)
            if record.planned:
                return _after_a_dead_controller(request.journal, how)
            if culprit in request.fatal or len(request.fatal) >= MAX_FATAL_FILES or not culprit:
                sys.stderr.write(f"ondol: collection died outside any test file ({how}); nothing was run\n")
                return PYTEST_INTERNAL_ERROR
            request.fatal.append(culprit)
            _add(request.journal, CollectionFault(culprit, how))
            request.arguments.append(f"--ondol-collection-fault={culprit}={how}")


def command_line(arguments: Sequence[str], through: Sequence[str]) -> list[str]:
    words = own_python.pytest(*arguments)
    return fixed_place.command_line(through, sys.executable, words) if through else words


def _never_began(request: Request, record: RunRecord, status: int) -> bool:
    """It refused what it was asked for, or it was only asked something."""
    return not record.first and (status != 0 or bool(_ONLY_ASKED.intersection(request.arguments)))


def _add(journal: Path, event: Event) -> None:
    book = Journal(journal)
    book.write(event)
    book.close()


def note_room(journal: Path, status: int, report: JobReport) -> None:
    """What the room of this machine has to say; not every pack that was filled: there may be thousands."""
    if not _size(journal):
        return
    told = {**report.as_dict(), "env": {}}
    told["tools"] = {tool.name: tool._replace(packs=())._asdict() for tool in report.busy()}
    _add(journal, NodeRoom("", status, told))


def _after_a_dead_controller(journal: Path, how: str) -> int:
    record = load(journal)
    sys.stdout.write(f"\nondol: pytest itself died: {how}\n\n{run_markdown.render(record)}\njournal: {journal}\n")
    return 1 if record.bad else exitcodes.INCOMPLETE


class _Watch:
    """One pytest process, watched until it has collected, then waited for."""

    def __init__(self, request: Request, environment: Environment, through: Sequence[str]) -> None:
        self.request = request
        self.why = ""
        self.dump = os.memfd_create("ondol-front-dump", os.MFD_CLOEXEC)
        front = UnderFront(os.getpid(), self.dump)
        words = command_line(request.arguments, through)
        self.process = subprocess.Popen(words, env={**environment, **as_environment(front)}, pass_fds=(self.dump,))
        self.pidfd = os.pidfd_open(self.process.pid)
        self._collected = False
        self._progress = time.monotonic()
        self._size = -1
        #: What an earlier run left in the same file says nothing about this one.
        self._start = _size(request.journal)

    def wait(self) -> int:
        try:
            while not select.select([self.pidfd], [], [], None if self._collected else 0.2)[0]:
                self._look()
            _, status = os.waitpid(self.process.pid, 0)
            self.process.returncode = 0  # waited for above
            return status
        finally:
            os.close(self.pidfd)
            os.close(self.dump)

    def _look(self) -> None:
        """While it collects: does the journal still grow?"""
        now = time.monotonic()
        size = _size(self.request.journal)
        if size != self._size:
            self._size, self._progress = size, now
            self._collected = self.record().planned
        elif self.request.collect_timeout and now - self._progress > self.request.collect_timeout:
            self._end_the_hang()

    def record(self) -> RunRecord:
        """What this pytest has written so far, without what became of each item."""
        record = RunRecord()
        if _size(self.request.journal) > self._start:
            for at, event in of_run(self.request.journal, self._start):
                record.apply(event, at)
        return record

    def _end_the_hang(self) -> None:
        pid = self.process.pid
        if proctree.catches(pid, killing.DUMP_SIGNAL):
            killing.send(pid, killing.DUMP_SIGNAL)
            select.select([self.pidfd], [], [], 0.3)
        stacks = os.pread(self.dump, 1 << 16, 0).decode(errors="replace")
        limit = self.request.collect_timeout
        main = stacks.partition("Current thread ")[2] or stacks  # it took the signal; others wait for something else
        frames = [line.strip() for line in main.splitlines() if line.startswith("  File ")]
        self.why = f"no progress for {limit:g} s; it hung at {[*frames, 'an unknown place'][0]}"
        killing.kill_all({pid, *proctree.descendants(pid)}, os.getpid())
        self._collected = True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def end_leftovers() -> None:
    """Whatever the run left is ours now: an agent that is still cleaning up gets a moment, the rest is ended."""
    own = os.getpid()
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        _reap_all()
        if not any(proctree.alive(pid) for pid in proctree.children(own) if pid not in bounded.helpers):
            break
        select.select([], [], [], 0.02)
    killing.end_below(but=bounded.helpers)


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


@contextmanager
def _signals() -> Iterator[tuple[list[int], list[int]]]:
    """Ctrl-C reaches pytest through the terminal; SIGTERM only reaches us, so it is passed on: to whom, and what."""
    targets: list[int] = []
    sent: list[int] = []

    def forward(number: int, _frame: object) -> None:
        sent.append(number)
        for pid in targets:
            killing.send(pid, number)

    def leave_it_to_pytest(_number: int, _frame: object) -> None:
        """A handler and not SIG_IGN: what is ignored here would be ignored in pytest too, across exec."""

    old = {
        signal.SIGINT: signal.signal(signal.SIGINT, leave_it_to_pytest),
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
    }
    try:
        yield targets, sent
    finally:
        for number, handler in old.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
