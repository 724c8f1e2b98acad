"""One worker as the agent sees it: its process, its deadlines, what it printed, and how it is ended.

The ladder, for a worker that does not come back: stacks of every Python thread of it and of its descendants, one
process at a time; native stacks when a debugger is there; TERM; grace; KILL of everything below it; and then waiting
until the kernel has really let go, because a device is held until then.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ondol.fleet import stacks
from ondol.fleet.agent.launch import Started
from ondol.fleet.messages import Clear, Done, End, How, Message, MoveIn, RunItem
from ondol.fleet.starts import SECTION_LIMIT, Limits, Place
from ondol.host import killing, proctree

MAX_DUMPS = 12
#: A process that cannot write its stacks within this time (stopped, or in the kernel) is passed over.
DUMP_PATIENCE = 1.0
#: How often a worker that runs something is looked at, whether it does.
LOOK = 5.0
#: A process that dies closes its descriptors a moment before it is gone.
DEAF_GRACE = 1.0


@dataclass
class Ladder:
    """Where the ending of a worker stands."""

    kind: How
    reason: str
    #: Reports of the phases that were over before.
    block: bytes
    stage: str = "dump"
    at: float = 0.0
    dump_queue: list[int] = field(default_factory=list)
    asked_at: float = 0.0
    asked_size: int = 0
    quiet_size: int = -1
    debugger: subprocess.Popen[bytes] | None = None
    targets: set[int] = field(default_factory=set)


class Keeper:
    """The agent's side of one worker."""

    #: The slot that it works for; a spare has one of its own until it moves.
    here: HostSlot

    def __init__(self, started: Started, place: Place, limits: Limits, now: float) -> None:
        self.pid = started.pid
        self.channel = started.channel
        self.dump = started.dump
        self.board = started.board
        self._lane = started.lane
        self.place = place
        self.limits = limits
        self.pidfd = os.pidfd_open(started.pid)
        self.capture: list[int] = []
        self.state = "starting"
        #: When somebody began to wait for it.
        self.since = now
        self.current: RunItem | None = None
        #: Handed ahead; whether it has begun the first one, it says when it ends the one before.
        self.ahead: deque[RunItem] = deque()
        self.ran = 0
        #: Messages that it should have heard since its hello.
        self._sent = 0
        self.phase = "start"
        self.deadline: float | None = now + limits.startup if limits.startup else None
        self.why_ending = ""
        self.last_item: int | None = None
        self.runtime = ""
        #: The item that what it has open was kept for; it has torn down everything else.
        self.expects: int | None = None
        #: It was told where to live and has not said hello from there.
        self.left_as_a_spare = False
        #: Its fixtures are finished; only exit handlers are left to run.
        self.left = False
        self.ladder: Ladder | None = None
        self._got_files = False
        self._dump_seen = 0
        #: When it last gave a sign of life; when its item began.
        self.heard = self._began = now
        self._output_size = 0

    # ------------------------------------------------------------------ talking

    def read(self) -> tuple[list[Message], bool]:
        """Everything that it has said, and whether its end is still open."""
        if not self._got_files:
            try:
                flag, fds, _, _ = socket.recv_fds(self.channel.sock, 1, 2, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return [], True  # it is dead, and something that it started holds its end open
            except OSError:
                return [], False
            self.capture = list(fds)
            self._got_files = True
            if not flag:
                return [], False
        return self.channel.receive_all()

    def run(self, message: RunItem, now: float) -> None:
        """Hand it an item."""
        self.begins(message, now)
        self._say(message)

    def _say(self, message: RunItem | Clear | End) -> None:
        self._sent += 1
        try:
            self.channel.send(message)
        except OSError:
            pass  # it is dead already; its pidfd says so

    def put_ahead(self, message: RunItem) -> bool:
        """Hand it the item that it shall run next; False when it holds as much as it can."""
        if self._lane.put(message):
            self.ahead.append(message)
            return True
        return False

    def take_back(self, every: bool = False) -> list[RunItem]:
        """What was handed ahead and it has not taken up; all of it when it is dead, or said that it begins nothing."""
        # It reads the lane while we do: what it took may stand between two that we took.
        taken = self._empty_the_lane()
        back = [message for message in self.ahead if every or message.item in taken]
        self.ahead = deque(message for message in self.ahead if not (every or message.item in taken))
        return back

    def runs(self, done: Done) -> bool:
        """It is about the attempt that runs here."""
        now = self.current
        return now is not None and (now.item, now.attempt) == (done.item, done.attempt)

    def was_handed(self, item: int | None) -> bool:
        return item is None or any(message.item == item for message in self.ahead)

    def passed_over(self, item: int) -> list[RunItem]:
        """What stood before it in the lane and was taken by somebody else, a fork of its last item."""
        return [self.ahead.popleft() for _ in range([message.item for message in self.ahead].index(item))]

    @property
    def waits_for_us(self) -> bool:
        """It has heard all that we said and said all that it has to say, by its board; and we wait for it."""
        busy = self.state in {"running", "clearing"} and self.ladder is None
        return busy and self.board.waits_after == self._sent

    @property
    def standing(self) -> tuple[object, ...]:
        """Another one as soon as we have heard something from it that changes anything."""
        return self.state, self.current, self._sent, self.ladder

    def never_took_up(self) -> RunItem | None:
        """What it was handed when it was dead, or nearly. Not of one that never ran anything: that would never end."""
        return self.current if self.ran and self.board.heard < self._sent else None

    def _empty_the_lane(self) -> set[int]:
        """The items that were still in it."""
        return {message.item for message in self._lane.take_all() if isinstance(message, RunItem)}

    def begins(self, message: RunItem, now: float) -> None:
        """Its time starts here and not while it waited for a device."""
        self.current = message
        self.runtime = message.runtime
        self.expects = message.hint
        self.state = "running"
        self.phase = "call"
        self.heard = self._began = now
        self._dump_seen = _size(self.dump)
        self.deadline = now + message.timeout if message.timeout else None

    def move_in(self, place: Place, base: str, now: float) -> None:
        self.place, self.state, self.since = place, "starting", now
        self.left_as_a_spare = True
        self.deadline = now + self.limits.startup if self.limits.startup else None
        try:
            self.channel.send(MoveIn(place._asdict(), base))
        except OSError:
            pass  # it is dead already; its pidfd says so

    def in_teardown(self, since: float) -> None:
        self.phase = "teardown"
        limit = self.limits.teardown
        self.deadline = since + limit if limit else None

    def clear_for(self, message: RunItem, now: float) -> None:
        """Have it tear down what this item does not need: on the time, and the account, of the items before."""
        self.state = "clearing"
        self.expects = message.item
        self.in_teardown(now)
        self._say(Clear(message.target, message.nodeid))

    def end(self, why: str, now: float) -> None:
        """Ask it to leave: it finishes its fixtures first."""
        self.state = "ending"
        self.why_ending = why
        self.phase = "exit"
        self.deadline = now + (self.limits.teardown or 300.0)
        self._say(End())

    def went_deaf(self, now: float) -> None:
        """Its end of the channel is closed: it is dying, or an item closed our descriptor and it lives on, deaf."""
        self.phase = "deaf"
        self.deadline = now + DEAF_GRACE

    # ------------------------------------------------------------------ deadlines

    def look_at_the_clock(self, now: float) -> None:
        """Begin to end it, if one of its deadlines has passed."""
        if self.state == "running" and self.phase == "call" and self.board.phase == "teardown":
            # What an earlier item left on the board is older than this one.
            self.in_teardown(max(self.board.since, self._began))
        if self.ladder is None and (broken := self.overdue(now)):
            deaf = self.phase == "deaf"
            self.start_ladder("crashed" if deaf else "timeout", broken, now, dump=not deaf)

    def not_watched(self, seconds: float) -> None:
        """So long its agent stood still, and perhaps everything (`docker pause`): nobody's time went by."""
        self.heard += seconds
        self._began += seconds
        if self.deadline is not None:
            self.deadline += seconds
        if self.ladder is not None:
            self.ladder.at += seconds

    def overdue(self, now: float) -> str | None:
        """Which limit it has broken, in words."""
        if self.deadline is not None and now >= self.deadline:
            return {
                "start": f"did not start within {self.limits.startup:g} s",
                "call": f"took longer than {self.current.timeout if self.current else 0.0:g} s",
                "interrupted": "did not end when it was interrupted",
                "teardown": f"its teardown took longer than {self.limits.teardown:g} s",
                "deaf": "closed the descriptor by which its worker reports, and did not end",
                "exit": f"did not leave within {self.limits.teardown:g} s",
            }[self.phase]
        if self.limits.silence and self.state == "running" and now - self._last_sign(now) >= self.limits.silence:
            return f"neither output nor progress for {self.limits.silence:g} s"
        return None

    def _last_sign(self, now: float) -> float:
        """When it last began a phase or printed."""
        self.heard = max(self.heard, self.board.since)
        size = sum(_size(fd) for fd in self.capture)
        if size != self._output_size:
            self._output_size = size
            self.heard = now
        return self.heard

    def next_look(self, now: float) -> float | None:
        """When something about it is due, even if nothing happens."""
        times = [self.ladder.at] if self.ladder else []
        if self.deadline is not None and self.ladder is None:
            times.append(self.deadline)
        if self.limits.teardown and self.state == "running" and self.phase == "call":
            # It does not say when its teardown begins: we look often enough to be there when that is overdue.
            times.append(now + self.limits.teardown)
        if self.limits.silence and self.state == "running":
            times.append(now + self.limits.silence / 4)
        if self.state in {"running", "clearing"} and self.ladder is None:
            times.append(now + LOOK)
        return min(times, default=None)

    # ------------------------------------------------------------------ the ladder

    def start_ladder(self, kind: How, reason: str, now: float, *, dump: bool = True) -> None:
        # Signals wake what hung: what it reports from now on does not count, and it shall begin nothing.
        self._empty_the_lane()
        below = proctree.descendants(self.pid)
        self.ladder = Ladder(kind, reason, self.board.block, at=now, targets={self.pid, *below})
        if dump:
            asked = [p for p in (self.pid, *below) if proctree.catches(p, killing.DUMP_SIGNAL)]
            self.ladder.dump_queue = asked[:MAX_DUMPS]
        else:
            self.ladder.stage = "term"

    def climb(self, now: float, lost: Callable[[str], None]) -> None:
        """The next rung, when its time has come."""
        ladder = self.ladder
        if ladder is None or now < ladder.at:
            return
        step = {
            "dump": self._climb_dump,
            "native": self._climb_native,
            "term": self._climb_term,
            "kill": self._climb_kill,
        }
        if ladder.stage in step:
            step[ladder.stage](ladder, now)
        elif ladder.stage == "reap":
            lost(proctree.describe(self.pid))
            ladder.stage = "lost"
            ladder.at = float("inf")

    def _climb_dump(self, ladder: Ladder, now: float) -> None:
        """One process at a time, until it has written and is quiet: together they would mix their lines."""
        size = _size(self.dump)
        written_and_quiet = size > ladder.asked_size and size == ladder.quiet_size
        if ladder.asked_at == 0.0 or written_and_quiet or now - ladder.asked_at > DUMP_PATIENCE:
            if not ladder.dump_queue:
                ladder.stage = "native"
                return
            ladder.asked_at, ladder.asked_size = now, size
            killing.send(ladder.dump_queue.pop(0), killing.DUMP_SIGNAL)
        ladder.quiet_size = size
        ladder.at = now + 0.05

    def _climb_native(self, ladder: Ladder, now: float) -> None:
        if ladder.debugger is None and self.limits.native_dump:
            ladder.debugger = killing.start_native_dump(self.pid, self.dump)
            ladder.quiet_size = 0
            if ladder.debugger is not None:
                ladder.at = now + 0.05
                return
        elif ladder.debugger is not None and ladder.debugger.poll() is None:
            ladder.quiet_size += 1
            if ladder.quiet_size * 0.05 < self.limits.native_dump:
                ladder.at = now + 0.05
                return
            ladder.debugger.kill()
            ladder.debugger.wait()
        ladder.stage = "term"

    def _climb_term(self, ladder: Ladder, now: float) -> None:
        ladder.targets |= killing.send_tree(self.pid, signal.SIGTERM, ladder.targets)
        ladder.stage = "kill"
        ladder.at = now + self.limits.grace

    def _climb_kill(self, ladder: Ladder, now: float) -> None:
        ladder.targets |= {self.pid, *proctree.descendants(self.pid)}
        killing.kill_all(ladder.targets, os.getpid())
        ladder.stage = "reap"
        ladder.at = now + self.limits.reap

    # ------------------------------------------------------------------ what it left

    def dumped(self) -> str:
        """Stacks since the current item began."""
        return stacks.readable(_read(self.dump, self._dump_seen))

    def printed(self) -> dict[str, str]:
        """What it had captured when it died."""
        names = ("stdout", "stderr")
        return {name: text for name, fd in zip(names, self.capture, strict=False) if (text := _read(fd, 0))}

    def descriptors(self) -> list[int]:
        """Ours; another worker must not keep them."""
        lane = (self._lane.reading, self._lane.writing)
        return [self.channel.fileno(), self.pidfd, self.dump, *self.capture, *lane]

    def close(self) -> None:
        for fd in (*self.capture, self.dump, self.pidfd):
            os.close(fd)
        self.channel.close()
        self._lane.close()
        self.board.close()


@dataclass
class HostSlot:
    """A slot on this host: at most one worker, perhaps a second one ready to take over, and what was handed to it."""

    name: str
    env: dict[str, str]
    devices: list[dict[str, Any]]
    worker: Keeper | None = None
    standby: Keeper | None = None
    queue: deque[RunItem] = field(default_factory=deque)
    generation: int = 0
    retiring: bool = False
    lost: bool = False
    #: A start failed here; the controller decides whether it is worth another one.
    held: bool = False


def _size(fd: int) -> int:
    try:
        return os.fstat(fd).st_size
    except OSError:
        return 0


def _read(fd: int, start: int) -> str:
    """The text from `start`, its middle left out when it is too long to show."""
    size = _size(fd)
    if size - start <= SECTION_LIMIT:
        return os.pread(fd, max(0, size - start), start).decode(errors="replace")
    head = os.pread(fd, SECTION_LIMIT // 4, start).decode(errors="replace")
    tail = os.pread(fd, SECTION_LIMIT * 3 // 4, size - SECTION_LIMIT * 3 // 4).decode(errors="replace")
    return f"{head}\n[… {size - start - SECTION_LIMIT} bytes left out …]\n{tail}"
