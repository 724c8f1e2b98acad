"""The lock on a cache: keyed by the directory itself, and never a reason why the command does not run.

A flock on the directory needs no file, no agreement about names and no write permission, and is the same lock whatever
path, user, container or TMPDIR one comes with. That settles it on a local file system. On a network file system such a
lock may hold on this machine only, so a lock file is taken as well, by flock or, where there is none, as a lease.
Whoever can take several takes all of them, in this order; two processes exclude each other as soon as they have one in
common. What is promised: docs/design/locks.md.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ondol import units
from ondol.errors import UsageError
from ondol.foreign_text import is_number, printable
from ondol.guard.lease import Lease
from ondol.guard.lock_parts import FlockPart, LockPlace, candidates, identify, open_place, reason
from ondol.host import bounded, files, filesystem, identity, process
from ondol.host.process import Owner
from ondol.trust import ci

#: Set for the command: which directory its guard has locked, and which process that is.
VARIABLE = "ONDOL_GUARDED"
#: While we wait: when to say so first, how often after that, and how long between two attempts.
_FIRST_WORD, _NEXT_WORD = 2.0, 30.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
_MAX_NOTE = 8192
#: A holder's command line is cut to this.
_LONGEST = 200
#: `https://user:token@index/`: a note is readable by everybody who can reach the cache.
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")
Tell = Callable[[str], None]


class Holder(NamedTuple):
    """Who holds a lock: a few lines that the holder leaves for those who wait.

    Others may read them and, in a shared directory, write them: they are shown, after a check that the process they
    name is not dead, and never believed for anything else.
    """

    owner: Owner
    host: str
    #: Seconds since the epoch, on the holder's clock.
    since: float
    command: str
    #: The CI job it belongs to; empty outside CI.
    job: str = ""

    def encode(self) -> bytes:
        lines = [self.owner.encode().decode(), self.host, f"{self.since:.0f}", self.command, self.job]
        return "".join(" ".join(line.split()) + "\n" for line in lines).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Holder | None":
        """The holder that wrote this, or None for bytes that say nothing."""
        lines = data.decode("utf-8", "replace").split("\n")
        owner = Owner.decode(lines[0].encode())
        if owner is None or len(lines) < 5 or not is_number(lines[2]):
            return None
        return cls(owner, lines[1], float(lines[2]), lines[3], lines[4])

    def text(self, now: float) -> str:
        """`pid 4242 on login05 for 42 s: uv pip install toolchain [job gpu-acc]`"""
        job = f" [{self.job}]" if self.job else ""
        lasted = units.seconds(max(0.0, now - self.since))
        return printable(f"pid {self.owner.pid} on {self.host} for {lasted}: {self.command}{job}")


def command_line(argv: Sequence[str]) -> str:
    """The command for a note: short, and without the passwords that URLs may hold."""
    text = _SECRET.sub("…@", " ".join(argv))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


class _Expired(Exception):
    """Somebody else still has it, and the time is up."""


class CacheLock:
    """Taken with `acquire`, given back with `release`. Neither raises; what could not be had is told."""

    def __init__(
        self,
        cache: str,
        argv: Sequence[str],
        tell: Tell,
        env: Mapping[str, str],
        *,
        wait: float = 900.0,
        make: bool = True,
    ) -> None:
        """`argv`: the command, for those who wait for us. `make`: the cache, if it is not there."""
        self.cache = cache
        #: What we hold, or held at last: `flock on …`; empty if we go on without a lock.
        self.standing = ""
        self.waited = 0.0
        #: Locks that could not be had, and why.
        self.passed: list[str] = []
        self._argv = argv
        self._tell = tell
        self._env = env
        self._wait = wait
        self._make = make
        self._places: list[LockPlace] = []
        self._distant = self._shared = False
        self._parts: list[FlockPart | Lease] = []
        self._note = -1
        self._spoke_at = 0.0

    def acquire(self, *, shared: bool = False) -> None:
        self._find_out()
        if _held_by_parent(self._env, identify(self.cache)):
            self.standing = "held by the guard around this one"
            return
        self._shared, self.standing = shared, ""
        self._spoke_at = 0.0
        self.passed.clear()
        started = time.monotonic()
        try:
            if not self._take_all(started):
                why = "; ".join(self.passed)
                self._tell(f"warning: no lock can be had for {self.cache}: {why}; going on without")
        except _Expired:
            self.release()
            patience = units.seconds(self._wait)
            self._tell(f"warning: {self.cache} is still {self._whose()}, after {patience}; going on without the lock")
        finally:
            self.waited += time.monotonic() - started
        if self._parts:
            self.standing = ", ".join(f"{part.kind} on {part.where}" for part in self._parts)
            self._leave_note()

    def release(self) -> None:
        if self._note >= 0:
            with suppress(OSError):  # a note about a process that is over is not shown
                os.ftruncate(self._note, 0)
            files.close_quietly(self._note)
            self._note = -1
        while self._parts:
            part = self._parts.pop()
            if not part.release():
                self._tell(f"warning: the lease {part.where} was lost while this process stood still; others went on")

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """For setting something aside: alone, also where the command ran beside others."""
        if not self._shared:
            yield
            return
        self.release()
        self.acquire()
        try:
            yield
        finally:
            self.release()
            self.acquire(shared=True)

    def env(self) -> dict[str, str]:
        """For the command: a guard inside it, on the same cache, must not wait for us."""
        me = process.myself()
        return {VARIABLE: f"{identify(self.cache)} {me.pid} {me.start}"}

    def _find_out(self) -> None:
        self.cache = filesystem.real(self.cache)
        if self._make:
            with suppress(OSError):  # the tool will say why it cannot be made, better than we could
                os.makedirs(self.cache, exist_ok=True)
        self._places = candidates(self.cache)
        if not os.path.isdir(self.cache):
            # Perhaps a misspelt name: no file of ours beside it, or in it.
            self._places = [place for place in self._places if not place.common]
        kind = filesystem.fs_type(self.cache)
        self._distant = kind == "unknown" or filesystem.is_network(kind)

    def _take_all(self, started: float) -> bool:
        """Whether any could be had. On a network the directory alone is not enough."""
        have = self._take(FlockPart(self.cache), started)
        if have and not self._distant:
            return True
        return any(self._take_at(place, started) for place in self._places) or have

    def _take_at(self, place: LockPlace, started: float) -> bool:
        """Whether this place is the one: its file can be made, and something there works as a lock."""
        part = FlockPart(place.path, place, distant=self._distant and place.common)
        try:
            part.open()
        except OSError as error:
            self.passed.append(f"{place.path}: {reason(error)}")
            return False
        return self._take(part, started) or self._take(Lease(place.path), started)

    def _take(self, part: FlockPart | Lease, started: float) -> bool:
        pause = _SHORTEST_PAUSE
        try:
            while not part.attempt(self._shared):
                elapsed = time.monotonic() - started
                if elapsed >= self._wait:
                    part.release()
                    raise _Expired
                self._speak(elapsed)
                time.sleep(min(pause, self._wait - elapsed))
                pause = min(pause * 1.5, _LONGEST_PAUSE)
        except OSError as error:
            part.release()
            self.passed.append(f"{part.kind} on {part.where}: {reason(error)}")
            return False
        self._parts.append(part)
        return True

    def _speak(self, elapsed: float) -> None:
        if elapsed >= (self._spoke_at + _NEXT_WORD if self._spoke_at else _FIRST_WORD):
            self._spoke_at = elapsed
            self._tell(f"waiting for {self.cache}, {self._whose()}")

    def _whose(self) -> str:
        for place in self._places:
            with suppress(OSError):
                holder = Holder.decode(files.read_regular(place.path, _MAX_NOTE)[0])
                if holder and not _is_over(holder):
                    return f"held by {holder.text(time.time())}"
        return "held by a process that left no note"

    def _leave_note(self) -> None:
        """Beside the cache if possible. Nothing depends on it."""
        job = ci.job_name(self._env)
        me = Holder(process.myself(), identity.hostname(), time.time(), command_line(self._argv), job)
        for place in self._places:
            with suppress(OSError):
                self._note = open_place(place)
                os.ftruncate(self._note, 0)
                os.pwrite(self._note, me.encode(), 0)
                return


def _is_over(holder: Holder) -> bool:
    # Another boot id may be another machine: only what happened under this kernel is certain.
    return holder.owner.boot == process.boot_id() and process.certainly_dead(holder.owner)


def _held_by_parent(env: Mapping[str, str], cache: str) -> bool:
    fields = env.get(VARIABLE, "").split(" ")
    if len(fields) != 3 or fields[0] != cache or not is_number(fields[1], 9):
        return False
    return not process.certainly_dead(process.myself()._replace(pid=int(fields[1]), start=fields[2]))


#: How many take the lock, how often each, and how long it is kept: long enough for another to get in if it can.
PROCESSES, _ROUNDS_EACH = 6, 5
_KEEP = 0.02
_TIME = 300.0


class Turn(NamedTuple):
    """One process was inside."""

    #: Somebody else was there too.
    clash: bool
    #: The lock had to be waited for: without that, nothing is proved.
    waited: bool
    standing: str
    passed: list[str]


def prove(cache: str, env: Mapping[str, str], wait: float) -> list[Turn]:
    """Let several processes in and out. No clash, a lock that stands and some waiting are the proof."""
    marker = os.path.join(cache, f".ondol-selftest-{files.random_name()}")
    try:
        os.makedirs(cache, exist_ok=True)
        os.close(os.open(marker, files.CREATE, 0o600))
        os.unlink(marker)
    except OSError as error:
        raise UsageError(
            f"the lock on {cache} cannot be tried",
            because=error.strerror or "",
            hint="name a directory that you can write",
        )
    around = {name: value for name, value in env.items() if name != VARIABLE}
    turns = list(range(PROCESSES * _ROUNDS_EACH))
    found: list[Turn] = bounded.in_parallel(turns, lambda _: _enter(cache, marker, around, wait), PROCESSES, _TIME)
    files.unlink_quietly(marker)
    return found


def _enter(cache: str, marker: str, env: Mapping[str, str], wait: float) -> Turn:
    lock = CacheLock(cache, ["ondol", "guard", "--selftest"], lambda _: None, env, wait=wait)
    lock.acquire()
    try:
        os.close(os.open(marker, files.CREATE, 0o600))
        clash = False
    except FileExistsError:
        clash = True
    time.sleep(_KEEP)
    if not clash:
        files.unlink_quietly(marker)
    lock.release()
    return Turn(clash, lock.waited > _KEEP / 2, lock.standing, lock.passed)
