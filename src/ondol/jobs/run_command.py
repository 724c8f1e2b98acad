"""The life of a job: open a room, fill it, run the command, harvest, publish, say what happened, close the room.

One rule above all others: nothing that happens on our side changes what the command does or how it ends, except where
the user asked for that (`--strict`, `--require-warm`). Every step but the command itself may fail, and then the job is
colder.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ondol import exitcodes
from ondol.config import BY_NAME, Settings
from ondol.errors import UsageError, in_ourselves
from ondol.host import command
from ondol.jobs import after, before
from ondol.jobs.context import Context, Progress
from ondol.tools import registry
from ondol.tools.table import Row
from ondol.trust import policy


class Interrupted(BaseException):
    """A signal that ends Ondol's own work; the room is still removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


#: Runs something with this environment, started by these words if there are any, to its end; returns its status. For
#: what is not simply a command.
Runner = Callable[[dict[str, str], list[str]], int]


class Job:
    """`argv` in a room; or, with `runner`, whatever that runs, under the name of `argv`."""

    def __init__(
        self,
        argv: Sequence[str],
        settings: Settings,
        env: Mapping[str, str],
        progress: Progress,
        runner: Runner | None = None,
        event: policy.Event | None = None,
    ) -> None:
        self._argv = list(argv)
        self._settings = settings
        self._runner = runner
        self._asked, self._tools = _tools(settings)
        self.context = Context(self._argv, settings, env, progress, event)
        if runner is not None:
            self.context.program = sys.executable  # `ondol test` runs pytest in our own Python
        self.report = self.context.report
        self._ended = False

    def run(self) -> int:
        """The whole job; returns the exit status."""
        with signals_raise() as signals:
            try:
                if not self.open():
                    return exitcodes.STRICT
                self._run_command()
                return self.close()
            except Interrupted as interruption:
                self.report.remarks.append(f"interrupted by {signal.Signals(interruption.number).name}")
                return self.report.status if self._ended else exitcodes.from_signal(interruption.number)
            finally:
                signals.ignore()  # a second signal must not stop us from cleaning up
                self._guarded("the room was not removed", lambda: after.leave(self.context))

    # `ondol open` and `ondol close` are these two, each in a process of its own.

    def open(self) -> bool:
        """Everything before the command. False if it must not be started."""
        if self.context.at is None:  # else somebody else's process runs it, and the key is asked for when we close
            self.take_key(beside=True)
        self._guarded("running cold", lambda: before.prepare(self.context, self._tools, asked=self._asked))
        self._guarded("nothing new will be published", lambda: after.load(self.context))
        if self._settings.strict and self.report.warnings:
            self.report.remarks.append("--strict: the command was not started")
            return False
        return True

    def take_key(self, *, beside: bool) -> None:
        """The key to sign with, if one was named. `beside`: the command runs as our own user."""
        if self._settings.sign_key:
            from ondol.jobs import signing

            self._guarded("nothing will be signed", lambda: signing.prepare(self.context, beside=beside))

    def close(self) -> int:
        """Everything after the command but leaving the room; returns the job's exit status."""
        self._guarded("nothing new was published", lambda: after.conclude(self.context))
        final = [self.report.status]
        self._guarded("the status is the command's", lambda: final.append(after.final_status(self.context)))
        return final[-1]

    def _guarded(self, otherwise: str, step: Callable[[], None]) -> None:
        """A bug of ours is cache trouble like any other: said once, with its place, and the command is not touched."""
        try:
            step()
        except Exception as error:
            self.report.warn(f"{otherwise}: {in_ourselves(error)}")

    def _run_command(self) -> None:
        started = time.monotonic()

        def on_end(ended: command.Ended) -> None:
            self._ended = True
            self.context.ended = time.time()
            self.report.run_seconds = time.monotonic() - started
            self.report.status = ended.status
            if ended.not_started:
                self.report.remarks.append(ended.not_started)

        try:
            self._guarded("nothing is published while the command runs", lambda: after.beside(self.context))
            if self._runner is None:
                self._start(on_end)
            else:
                command.starting()
                on_end(command.Ended(self._runner(self.context.env, self.context.through)))
        except Exception as error:
            if not self._ended:
                self.report.status = exitcodes.INTERNAL
            self.report.warn(in_ourselves(error))

    def _start(self, on_end: Callable[[command.Ended], None]) -> None:
        if self._settings.retries:
            from ondol.jobs import retrying  # only who asks for it pays for it

            retrying.run(self.context, self._argv, on_end)
        else:
            command.run(self._argv, self.context.env, on_end, through=self.context.through)


def _tools(settings: Settings) -> tuple[set[str], list[Row]]:
    """(the names that the user gave, the tools)"""
    names = settings.tools
    if names == ["none"]:
        return set(), []
    try:
        rows = {row.name: row for row in registry.choose(names)}
    except UsageError as error:
        if settings.origin("tools") in ("command line", BY_NAME["tools"].variable):
            raise
        settings.warnings.append(f"tools from {settings.origin('tools')} passed over: {error.line()}")
        names = BY_NAME["tools"].default
        rows = {row.name: row for row in registry.choose(names)}
    if registry.AUTO in names:
        rows = {row.name: row for row in registry.switched_on(settings.value)} | rows
    return {name for name in names if name != registry.AUTO and name in rows}, list(rows.values())


class signals_raise:  # noqa: N801 - reads as a phrase: `with signals_raise():`
    """While Ondol itself works, a signal ends that work in an orderly way; it never kills between two steps."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> signals_raise:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:  # nohup stays nohup
                signal.signal(number, self._raise)
        return self

    def ignore(self) -> None:
        for number in self._NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @staticmethod
    def _raise(number: int, _frame: object) -> None:
        raise Interrupted(number)
