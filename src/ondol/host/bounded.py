"""Do something that may hang or crash (a dead NFS server, a broken disk) without hanging or crashing with it.

The work runs in a forked child with nothing of ours in its hands but a pipe: a child stuck in the kernel keeps no
terminal and no CI log pipe open, and can simply be left behind. The parent waits for at most the given time.
"""

import marshal
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

from ondol import errors
from ondol.host import files, proctree, records

#: Called in the parent with (done, total) while the child works.
Progress = Callable[[int, int], None]
Report = Callable[[int, int], None]
#: Our own children that work beside the command: whoever ends what a command left behind leaves them alone.
helpers: set[int] = set()
#: Items a piece: small enough to share the work fairly and to show progress, large enough to make it cheap.
PIECE = 32
#: Below this many items, forking costs more than it gains.
WORTH_FORKING = 64
#: Seconds for a killed child to die; one that hangs in the kernel is left after a twentieth of them.
DYING = 5.0
#: How many turns `in_parallel` deals out at most; a turn is usually one piece.
_TURNS = 1024


class TimedOut(errors.OndolError):
    """The child was still at it when the time was up; it has been killed or, if that is impossible, left behind."""


def call(
    work: Callable[[Report], Any], seconds: float, progress: Progress | None = None, memory: int | None = None
) -> Any:
    """Run `work` in a child; return its result (made of records, dicts, lists, strings, numbers).

    `memory`: bytes that it, and each of its own helpers, may have. What a stranger left must not cost us the machine.

    An `OndolError` raised in the child is raised here. So is any other end of it, as `OndolError`: a child that dies
    of a signal is a fault of what it touched, and the caller decides what that is worth.
    """
    pid, reading = _fork(lambda pipe: _child(work, pipe, memory))
    try:
        return _listen(pid, reading, time.monotonic() + seconds, seconds, progress)
    finally:
        os.close(reading)
        _end(pid)


def _fork(child: Callable[[int], None]) -> tuple[int, int]:
    """(process, the pipe from which its answer is read). Raises `OndolError` if there can be none.

    `child` gets the other end of the pipe.
    """
    reading, writing = _pipe()
    _flush()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise _no_helper(error)
    if pid == 0:
        try:
            os.close(reading)
            child(writing)
        finally:
            # _exit: the parent's buffers, finalisers and temporary files are the parent's.
            os._exit(1)
    os.close(writing)
    return pid, reading


class Helper:
    """A child that works beside us, when nobody else needs the machine, until it is told to stop.

    It ends with us, also if we are killed.
    """

    def __init__(self, work: Callable[[Callable[[float], bool]], Any], memory: int) -> None:
        """`work` gets a function that waits for so many seconds and tells whether to stop; its result is for `stop`."""
        us, (told, self._telling) = os.getpid(), _pipe()
        try:
            self.pid, self._answer = _fork(
                lambda pipe: _child(lambda _report: _beside(us, told, self._telling, work), pipe, memory)
            )
        except errors.OndolError:
            os.close(self._telling)
            raise
        finally:
            os.close(told)
        helpers.add(self.pid)

    def stop(self, seconds: float) -> Any:
        """What `work` returns. Raises `OndolError` if it does not within so many seconds, or has died."""
        try:
            os.close(self._telling)
            return _listen(self.pid, self._answer, time.monotonic() + seconds, seconds, None)
        finally:
            os.close(self._answer)
            _end(self.pid)
            helpers.discard(self.pid)


def _beside(parent: int, told: int, telling: int, work: Callable[[Callable[[float], bool]], Any]) -> Any:
    os.close(telling)
    proctree.die_with_parent(parent)
    os.nice(19)
    poller = select.poll()
    poller.register(told, select.POLLIN | select.POLLHUP)
    return work(lambda seconds: bool(poller.poll(seconds * 1000)))


def _flush() -> None:
    """What we have printed must not be printed again by the child. A stream may be closed, full or missing."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _pipe() -> tuple[int, int]:
    try:
        return os.pipe()
    except OSError as error:
        raise _no_helper(error)


def _no_helper(error: OSError) -> errors.OndolError:
    return errors.OndolError("no helper process could be started", because=error.strerror or str(error))


def _child(work: Callable[[Report], Any], pipe: int, memory: int | None) -> None:
    if memory is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, 0)  # so that helpers of the child can be ended with it, and Ctrl-C reaches the parent only
    _let_go_of_standard_streams()
    _answer(work, pipe)


def _answer(work: Callable[[Report], Any], pipe: int) -> None:
    _send(pipe, _outcome(work, pipe))
    os._exit(0)


def _outcome(work: Callable[[Report], Any], pipe: int) -> tuple[str, Any]:
    try:
        return "result", work(lambda done, total: _send(pipe, ("progress", (done, total))))
    except errors.OndolError as error:
        fields = (error.what, error.because, error.note, error.hint)
        return "error", (type(error).__name__, fields)
    except MemoryError:
        return "error", ("OndolError", ("looking at it took more memory than is allowed", "", "", ""))
    except Exception as error:  # a bug in the child must become a warning in the parent, with its place
        return "error", ("OndolError", (errors.in_ourselves(error), "", "", ""))


def _let_go_of_standard_streams() -> None:
    try:
        null = os.open(os.devnull, os.O_RDWR)
    except OSError:  # a bare chroot without /dev
        null = os.memfd_create("null")
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def _send(pipe: int, message: tuple[str, Any]) -> None:
    data = marshal.dumps(records.plain(message))
    files.write_all(pipe, len(data).to_bytes(8, "little") + data)


def _listen(pid: int, pipe: int, deadline: float, seconds: float, progress: Progress | None) -> Any:
    buffer = bytearray()
    poller = select.poll()
    poller.register(pipe, select.POLLIN | select.POLLHUP)
    late = False
    while True:
        left = deadline - time.monotonic()
        # It may have been us who stood still (Ctrl-Z, a busy machine): what has arrived meanwhile is still looked at.
        if late or not poller.poll(max(0.0, left) * 1000):
            raise TimedOut(f"no answer within {seconds:g} seconds", because=f"process {pid} was stopped")
        late, data = left <= 0, os.read(pipe, 1 << 20)
        if not data:
            raise errors.OndolError("the helper process ended without an answer", because=_cause_of_death(pid))
        buffer += data
        while len(buffer) >= 8 and len(buffer) >= 8 + (size := int.from_bytes(buffer[:8], "little")):
            kind, content = records.real(marshal.loads(bytes(buffer[8 : 8 + size])))
            del buffer[: 8 + size]
            if kind == "result":
                return content
            if kind == "error":
                name, (what, because, note, hint) = content
                raise getattr(errors, name, errors.OndolError)(what, because=because, note=note, hint=hint)
            if progress:
                progress(*content)


def _cause_of_death(pid: int) -> str:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return "its exit status is not known"
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"status {os.waitstatus_to_exitcode(status)}"


def _end(pid: int) -> None:
    """Make sure the child is gone, without waiting long for one that the kernel will not let go. Whoever unmounts the
    store after us must not find it busy.
    """
    with suppress(OSError):  # already reaped, or not yet in its own group
        done, _ = os.waitpid(pid, os.WNOHANG)
        if done:
            return
        os.killpg(pid, signal.SIGKILL)
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        # Root may: a helper of low priority dies slowly on a busy machine.
        os.setpriority(os.PRIO_PROCESS, pid, 0)
    with suppress(ChildProcessError):  # where SIGCHLD is ignored, or somebody else has waited
        began = time.monotonic()
        while not os.waitpid(pid, os.WNOHANG)[0] and (waited := time.monotonic() - began) < DYING:
            if waited > DYING / 20 and proctree.state(pid) == "D":  # it hangs in the kernel
                return
            time.sleep(0.001)


def in_pieces(
    items: Sequence[Any],
    work: Callable[[Any], Any],
    processes: int,
    seconds: float,
    progress: Progress,
    enough: Callable[[Any], bool],
) -> list[Any]:
    """As `in_parallel`, for many small items: `work` gets some of them at a time."""
    pieces = [items[start : start + PIECE] for start in range(0, len(items), PIECE)]

    def told(done: int, _: int) -> None:
        progress(min(done * PIECE, len(items)), len(items))

    return in_parallel(pieces, work, processes if len(items) >= WORTH_FORKING else 1, seconds, told, enough)


def in_parallel(
    pieces: list[Any],
    work: Callable[[Any], Any],
    processes: int,
    seconds: float,
    progress: Progress | None = None,
    enough: Callable[[Any], bool] | None = None,
) -> list[Any]:
    """Run `work` on each piece, in up to so many forked processes; results in the pieces' order.

    For processor-heavy pieces that share nothing. Whoever is done takes the next piece, so that all processors stay
    busy to the end. With one process, or one piece, nothing is forked. A result that is `enough` (a full disk) ends
    the work: pieces that nobody has begun are left out of the results.
    """
    queue = _queue(len(pieces))
    me = os.getpid()
    running: list[tuple[int, int]] = []
    try:
        for _ in range(min(processes, len(pieces)) - 1):
            running.append(_fork(partial(_answer, lambda _: _take_turns(me, queue, pieces, work, enough, None))))
        results = _take_turns(me, queue, pieces, work, enough, progress)
        deadline = time.monotonic() + seconds
        for pid, pipe in running:
            results += _listen(pid, pipe, deadline, seconds, None)
    finally:
        os.close(queue)
        for pid, pipe in running:
            os.close(pipe)
            _end(pid)
    if progress and len(results) == len(pieces):
        progress(len(pieces), len(pieces))
    return [result for _, result in sorted(results, key=itemgetter(0))]


def _queue(length: int) -> int:
    """A pipe that holds the numbers of the turns and then ends: reading one takes it, for all processes."""
    reading, writing = os.pipe()
    # At most 4096 bytes: a user with many pipes open gets small ones, and writing must not wait for a reader.
    turns = range(min(length, _TURNS))
    os.write(writing, b"".join(turn.to_bytes(4, "little") for turn in turns))
    os.close(writing)
    return reading


def _take_turns(
    first: int,
    queue: int,
    pieces: list[Any],
    work: Callable[[Any], Any],
    enough: Callable[[Any], bool] | None,
    progress: Progress | None,
) -> list[tuple[int, Any]]:
    done: list[tuple[int, Any]] = []
    # When the first process is killed its helpers stop too, instead of working on for nobody.
    while first in (os.getpid(), os.getppid()) and (turn := os.read(queue, 4)):
        for number in range(int.from_bytes(turn, "little"), len(pieces), _TURNS):
            if progress:
                progress(number, len(pieces))
            done.append((number, work(pieces[number])))
            if enough and enough(done[-1][1]):
                while os.read(queue, 4096):
                    pass  # nobody begins another turn
                return done
    return done
