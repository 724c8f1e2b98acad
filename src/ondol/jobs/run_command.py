"""The life of a job: open a room, fill it, run the command, harvest, publish, say what happened, close the room.

One rule above all others: nothing that happens on our side changes what the command does or how it ends, except where
the user asked for that (`--strict`, `--require-warm`). Every step but the command itself may fail, and then the job is
colder.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from ondol import exitcodes
from ondol.errors import OndolError, in_ourselves
from ondol.host import command
from ondol.jobs import after, before, beside, maker
from ondol.jobs.job import Job


class Interrupted(BaseException):
    """A signal that ends Ondol's own work; the room is still removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


#: Runs something with this environment, started by these words if there are any, to its end; returns its status. For
#: what is not simply a command.
Runner = Callable[[dict[str, str], list[str]], int]


def run(job: Job, runner: Runner | None = None) -> int:
    """The whole job; returns the exit status. With `runner`: whatever that runs, under the name of the command."""
    with signals_raise() as signals:
        try:
            if not open_job(job):
                return exitcodes.STRICT
            _run_command(job, runner)
            return close_job(job)
        except Interrupted as interruption:
            job.report.remarks.append(f"interrupted by {signal.Signals(interruption.number).name}")
            return exitcodes.from_signal(interruption.number) if job.ended is None else job.report.status
        finally:
            signals.ignore()  # a second signal must not stop us from cleaning up
            _guarded(job, "the room was not removed", after.leave)


# `ondol open` and `ondol close` are these two, each in a process of its own.


def open_job(job: Job) -> bool:
    """Everything before the command. False if it must not be started."""
    if job.at is None:  # else somebody else's process runs it, and the key is asked for when we close
        take_key(job, beside=True)
    _guarded(job, "running cold", before.prepare)
    _guarded(job, "nothing new will be published", before.load)
    if job.settings.strict and job.report.warnings:
        job.report.remarks.append("--strict: the command was not started")
        return False
    return True


def take_key(job: Job, *, beside: bool) -> None:
    """The key to sign with, if one was named. `beside`: the command runs as our own user."""
    key = job.settings.sign_key
    if key:
        _guarded(job, "nothing will be signed", lambda job: job.sign_with(maker.signer(key, job.env, beside=beside)))


def close_job(job: Job) -> int:
    """Everything after the command but leaving the room; returns the job's exit status."""
    _guarded(job, "nothing new was published", after.conclude)
    final = [job.report.status]
    _guarded(job, "the status is the command's", lambda job: final.append(after.final_status(job)))
    return final[-1]


def _guarded(job: Job, otherwise: str, step: Callable[[Job], None]) -> None:
    """A bug of ours is cache trouble like any other: said once, with its place, and the command is not touched."""
    try:
        step(job)
    except OndolError as error:
        job.report.warn(f"{otherwise}: {error.line()}")
    except Exception as error:
        job.report.warn(f"{otherwise}: {in_ourselves(error)}")


def _run_command(job: Job, runner: Runner | None) -> None:
    started = time.monotonic()

    def on_end(ended: command.CommandEnded) -> None:
        job.command_ended(ended.status, time.time(), time.monotonic() - started)
        if ended.not_started:
            job.report.remarks.append(ended.not_started)

    try:
        if job.retries:
            from ondol.jobs import retrying  # only who asks for it pays for it
        if job.sign:
            maker.seal()
        _guarded(job, "nothing is published while the command runs", beside.start)
        if runner is not None:
            on_end(command.CommandEnded(runner(job.env, job.through)))
        elif job.retries:
            retrying.run(job, on_end)
        else:
            command.run(job.argv, job.env, on_end, through=job.through)
    except Exception as error:
        if job.ended is None:
            job.report.status = exitcodes.INTERNAL
        job.report.warn(in_ourselves(error))


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
