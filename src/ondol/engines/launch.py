"""One launch command, as the controller holds it: its two pipes, what it wrote to standard error, and its end.

Nothing here waits: a carrier that has stopped reading must not hold up the nodes that work.
"""

import os
import signal
import subprocess
import tempfile
from typing import IO

from ondol.host import killing

#: Seconds from SIGTERM to closing its standard input, and from there to SIGKILL.
TERM_GRACE, CLOSE_GRACE = 3.0, 3.0
#: Seconds for a node that has run nothing to end its pytest and to close its room.
DISMISS_GRACE = 20.0
#: Of its standard error, so much is kept as evidence.
LOG_SHOWN = 4000
_PIPE_SIZE = 1 << 20


class Launch:
    """A running command. `start` never raises: what could not be started has ended, with a reason."""

    def __init__(self, command: list[str], environment: dict[str, str], *, show_errors: bool = False) -> None:
        self._outbox = bytearray()
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = ""
        self._stage, self._next = "", float("inf")
        their_in, self.writing = os.pipe2(os.O_CLOEXEC)
        self.reading, their_out = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.writing, False)
        os.set_blocking(self.reading, False)
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=their_in,
                stdout=their_out,
                stderr=None if show_errors else self._log,
                # Ctrl-C at the terminal is ours to handle: srun and docker would take it for themselves.
                start_new_session=True,
            )
        except OSError as error:
            self._failed = f"{command[0]} could not be started: {error.strerror}"
        finally:
            os.close(their_in)
            os.close(their_out)

    # ------------------------------------------------------------------ talking

    def send(self, data: bytes) -> None:
        self._outbox += data
        self.flush()

    def flush(self) -> None:
        try:
            while self._outbox and self.writing >= 0:
                sent = os.write(self.writing, self._outbox[: 1 << 16])
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox.clear()  # its end shows in what we read

    @property
    def has_more_to_send(self) -> bool:
        return bool(self._outbox) and self.writing >= 0

    def read(self) -> tuple[bytes, bool]:
        """What has arrived, and whether more may come."""
        try:
            data = os.read(self.reading, _PIPE_SIZE) if self.reading >= 0 else b""
        except BlockingIOError:
            return b"", True
        except OSError:
            data = b""
        return data, bool(data)

    # ------------------------------------------------------------------ ending

    def expect_end(self, now: float) -> None:
        """Its work is done: it may tidy up for a moment before it is asked to end."""
        if not self._stage:
            self._stage, self._next = "end", now + TERM_GRACE

    def dismiss(self, now: float) -> None:
        """Nothing is wanted of it after all: the end of its input tells it so, and it leaves nothing behind."""
        self._stage, self._next = "dismissed", now + DISMISS_GRACE
        self._close_input()

    def cancel(self, now: float) -> None:
        """Begin: a broker gives its device back when it is asked to end, not when it is killed."""
        if self._stage in {"", "end"}:
            self._stage, self._next = "term", now + TERM_GRACE
            self._signal(signal.SIGTERM)

    def hurry(self, now: float) -> None:
        """The next step towards its end, when its time has come."""
        if now < self._next:
            return
        if self._stage in {"end", "dismissed"}:
            self._stage = ""
            self.cancel(now)
        elif self._stage == "term":
            self._stage, self._next = "close", now + CLOSE_GRACE
            self._close_input()
        else:
            self.kill()

    def kill(self) -> None:
        self._stage, self._next = "kill", float("inf")
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            killing.send(-self._process.pid, number)  # to its group, which it leads

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def how(self) -> str:
        """How it ended, in words."""
        if self._process is None:
            return self._failed
        status = self._process.returncode
        if status is None:
            return "its launch command still runs"
        if status < 0:
            return f"its launch command was killed by {signal.Signals(-status).name}"
        return f"its launch command ended with status {status}"

    def log(self) -> str:
        """The end of what it wrote to standard error."""
        size = os.fstat(self._log.fileno()).st_size
        data = os.pread(self._log.fileno(), LOG_SHOWN, max(0, size - LOG_SHOWN))
        return data.decode(errors="replace").strip()

    def _close_input(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Forget it; it has ended, or it is nobody's any more."""
        self._close_input()
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1
        if not self._log.closed:
            self._log.close()
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = -signal.SIGKILL  # it hangs in the kernel: Popen must not complain
