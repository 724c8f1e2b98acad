"""Run the user's command as if we were not there: its streams, its terminal, its signals, its exit status. And ask
another program something.
"""

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ondol import exitcodes

#: Forwarded when sent to us alone. SIGQUIT and the user signals are what debuggers and fault handlers listen to.
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: si_code of a signal that the terminal sent to the whole foreground group: the command has it already.
_SI_KERNEL = 0x80
_TYPED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class CommandEnded(NamedTuple):
    status: int
    #: Why the command never ran, for 126 and 127; empty otherwise.
    not_started: str = ""
    #: The signal that ended it, if one did.
    signal: int = 0


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    on_end: Callable[[CommandEnded], None],
    *,
    through: Sequence[str] = (),
    streams: Mapping[int, int] | None = None,
) -> None:
    """Start `argv`, forward signals to it, wait for its end; `on_end` is told before any signal can interrupt us.

    `through`: a starter of `host/fixed_place` that turns into the command, if it must not simply be started.
    `streams`: standard descriptors that are not ours (1, 2) → the descriptor to use instead.
    """
    program = find(argv[0], env)
    if isinstance(program, CommandEnded):
        on_end(program)
        return
    watched = {*FORWARDED, signal.SIGCHLD}
    # A runner may have left SIGCHLD ignored; then the kernel would reap the child and its status would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        mask = before
        if through:
            from ondol.host import fixed_place  # only a job that asked for fixed paths pays for it

            argv = fixed_place.command_line(through, program, argv, mask)
            # Blocked until it is the command: a signal in between ends the command, and not a Python with a trace.
            program, mask = argv[0], {*mask, *FORWARDED}
        pid = _spawn(program, argv, env, mask, streams or {})
        on_end(pid if isinstance(pid, CommandEnded) else _wait(pid, watched))
    finally:
        # What is still pending was meant for the command, which is over.
        while pending := signal.sigpending() & watched:
            signal.sigwait(pending)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold_standard_descriptors() -> None:
    """Occupy standard descriptors that were closed when we started, so that no file of ours takes their numbers.

    Close-on-exec: for the command they are as closed as they were for us.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest free number, which is this one


def find(name: str, env: Mapping[str, str]) -> str | CommandEnded:
    """The file that a shell would execute, or the shell's verdict that there is none."""
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder or ".", name) for folder in env.get("PATH", os.defpath).split(os.pathsep)]
    refused = ""
    for candidate in candidates:
        if os.path.isdir(candidate) and "/" in name:
            return CommandEnded(exitcodes.NOT_EXECUTABLE, f"{name}: is a directory")
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            refused = candidate
    if refused:
        return CommandEnded(exitcodes.NOT_EXECUTABLE, f"{refused}: permission denied")
    return CommandEnded(exitcodes.NOT_FOUND, f"{name}: command not found")


def _spawn(
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    mask: set[signal.Signals | int],
    streams: Mapping[int, int],
) -> int | CommandEnded:
    redirections = [(os.POSIX_SPAWN_DUP2, source, number) for number, source in streams.items()]

    def spawn(path: str, arguments: list[str]) -> int:
        # Python ignores SIGPIPE and SIGXFSZ for itself; the command must not inherit that.
        return os.posix_spawn(
            path,
            arguments,
            dict(env),
            file_actions=redirections,
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
        )

    try:
        return spawn(program, list(argv))
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without a #! line: a shell would run it with sh
            return spawn("/bin/sh", ["sh", program, *argv[1:]])
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        status = exitcodes.NOT_FOUND if missing else exitcodes.NOT_EXECUTABLE
        detail = f"{program}: {error.strerror}"
        if missing:
            detail += " (the interpreter in its first line?)"
        return CommandEnded(status, detail)


def _wait(pid: int, watched: set[signal.Signals]) -> CommandEnded:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return _ended(status)
        received = signal.sigwaitinfo(watched)
        if received.si_signo == signal.SIGCHLD or (received.si_signo in _TYPED and received.si_code == _SI_KERNEL):
            continue  # the terminal has told the command itself: forwarding would deliver it twice
        with suppress(ProcessLookupError):  # it ended at this moment; the next round reaps it
            os.kill(pid, received.si_signo)


def _ended(status: int) -> CommandEnded:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return CommandEnded(exitcodes.from_signal(number), signal=number)
    return CommandEnded(os.WEXITSTATUS(status))


def asked(words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None, cwd: str | None = None) -> str:
    """What a program prints; empty if it cannot be started, fails, or takes longer. It gets no input."""
    import subprocess  # most jobs ask nobody

    around, nothing = None if env is None else dict(env), subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, env=around, cwd=cwd, stdin=nothing, capture_output=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else ""
