"""The journal of a run: one JSON line per event, written before anything is shown. Everything else is a rendering of
it.

Each line is one `write` to a file opened for appending, so a SIGKILL at any point leaves whole lines and at most one
torn one at the end, which reading skips. The events are a closed set of types; a line holds the name of its type, the
time, and the fields that differ from their defaults. Items are named by their index in `Planned`.
"""

import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ondol.errors import UsageError
from ondol.fleet.messages import Healed, NodeRoom, NodeStory, Probed, StartFailed, Waits, WorkerEnded, WorkerUp
from ondol.host import zstd

FORMAT = 1
#: How a kept journal's name ends. It is two zstd frames, which `zstdcat` reads as one journal: one line, what became of
#: each item, for who reads hundreds of runs (`past`; readers of journals pass that event over); and the whole journal.
KEPT = ".jsonl.zst"
#: Unpacked, of the line and of the journal: who wrote the file can promise what he likes.
_LINE, LONGEST = 64 << 20, 512 << 20


class Run(NamedTuple):
    """What is run, by whom, on what."""

    format: int = FORMAT
    arguments: Sequence[str] = ()
    root: str = ""
    devices: Sequence[dict[str, Any]] = ()
    #: Slot → its device; more come with nodes.
    slots: dict[str, str] = {}
    found: str = ""
    mode: str = ""
    python: str = ""
    pytest: str = ""


class Start(NamedTuple):
    """An attempt begins."""

    item: int
    attempt: int
    slot: str
    worker: str
    device: str
    warm: bool


class End(NamedTuple):
    """An attempt has ended."""

    item: int
    attempt: int
    outcome: str
    cause: str
    reason: str
    seconds: float
    phases: Sequence[dict[str, Any]] = ()
    #: Of a bad one: its failure, its stacks, its output.
    text: str = ""
    dump: str = ""
    output: dict[str, str] = {}
    dirt: Sequence[Sequence[str]] = ()
    #: Of one that was cut off: in which phase.
    phase: str = ""


#: An attempt that was said to begin there did not: its worker was dead.
Withdrawn = NamedTuple("Withdrawn", [("item", int), ("slot", str)])
Collecting = NamedTuple("Collecting", [("node", str)])
#: A file ended or hung the process that collected it.
CollectionFault = NamedTuple("CollectionFault", [("file", str), ("why", str)])
Planned = NamedTuple("Planned", [("items", Sequence[str])])
#: The slot prepares this item; None: no longer.
Preparing = NamedTuple("Preparing", [("slot", str), ("item", int | None)])
#: A later verdict of the same item replaces the earlier one and is always worse.
Verdict = NamedTuple("Verdict", [("item", int), ("verdict", str), ("flaky", bool), ("why", str)])
#: A wider fixture's finaliser failed after its last item had its verdict.
Late = NamedTuple("Late", [("item", int), ("text", str)])
#: A device is set aside; `items` are the witnesses.
Quarantine = NamedTuple("Quarantine", [("device", str), ("why", str), ("items", Sequence[int])])
AgentDied = NamedTuple("AgentDied", [("why", str)])
#: Nothing more is handed out. `exit`: what `pytest.exit` said, and its status.
Stopped = NamedTuple("Stopped", [("reason", str), ("exit", Sequence[Any] | None)])
#: By item: why it is muted, and until when. And what is wrong with the file that says so.
Known = NamedTuple("Known", [("muted", dict[str, str]), ("expired", Sequence[str])])
#: Said in the summary.
Note = NamedTuple("Note", [("text", str)])
#: The controller's last line.
Over = NamedTuple("Over", [("status", int), ("counts", dict[str, int])])

#: What was heard and is kept as it was heard.
Heard = NodeStory | Waits | WorkerUp | WorkerEnded | StartFailed | Probed | Healed
OfItems = Start | Withdrawn | End | Verdict | Late | Preparing
OfRun = Collecting | CollectionFault | Run | Planned | Known | Quarantine | AgentDied | Stopped | Note | Over
Event = OfItems | OfRun | Heard

_TAGS: dict[Any, str] = {kind: re.sub(r"\B([A-Z])", r"-\1", kind.__name__).lower() for kind in get_args(Event)}
_TAGS |= {WorkerUp: "worker", Probed: "probe", NodeRoom: "room"}
_KINDS = {tag: kind for kind, tag in _TAGS.items()}
_OF_ITEM = re.compile(rb'\{"t": [\d.e+-]+, "e": "(%s)"' % "|".join(_TAGS[kind] for kind in get_args(OfItems)).encode())
_to_json = json.JSONEncoder(default=repr).encode


def as_line(event: Event) -> dict[str, Any]:
    """The event as the journal and the JSON report have it."""
    defaults = event._field_defaults
    told = {name: value for name, value in zip(event._fields, event, strict=True) if value != defaults.get(name, _TAGS)}
    return {"e": _TAGS[type(event)], **told}


class Journal:
    """The writing end; owned by the controller."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = _open(path)
        self._owner = os.getpid()

    def fileno(self) -> int:
        return self._fd

    @property
    def ours(self) -> bool:
        """Not in a fork of the controller: the journal is not its business."""
        return os.getpid() == self._owner

    def write(self, *events: Event) -> float:
        """One system call for all of them; returns their time."""
        now = round(time.time(), 4)
        if not self.ours:
            return now
        lines = b"".join(_to_json({"t": now, **as_line(e)}).encode() + b"\n" for e in events)
        view = memoryview(lines)
        while view:
            view = view[os.write(self._fd, view) :]
        return now

    def close(self) -> None:
        if self.ours:
            os.fsync(self._fd)
        os.close(self._fd)


def _open(path: Path) -> int:
    """For us alone: captured output may hold secrets. Never through a link, which anybody could have put there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass  # a run that began again after a test file ended its collection
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise UsageError(f"the journal {path} cannot be written", because=error.strerror or "", hint="--journal FILE")
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(fd)
        why = f"it belongs to uid {status.st_uid}, is no plain file, or has another name"
        raise UsageError(f"the journal {path} is not ours alone", because=why, hint="--journal FILE")
    os.fchmod(fd, 0o600)
    return fd


def events(path: Path) -> Iterator[tuple[float, Event]]:
    """Every event with its time."""
    if path.name.endswith(KEPT):
        try:
            yield from events_in(journal_of(path.read_bytes()))
        except zstd.ZstdError as error:
            raise UsageError(
                f"{path} is not a kept journal", because=str(error), hint="`ondol history` names what there is"
            )
        return
    with open(path, "rb") as file:
        yield from _known(file)


def of_run(path: Path, start: int) -> Iterator[tuple[float, Event]]:
    """From byte `start` on, those that are not about one item, which are most: these are not even parsed."""
    with open(path, "rb") as file:
        file.seek(start)
        yield from _known(line for line in file if not _OF_ITEM.match(line))


def events_in(data: bytes) -> Iterator[tuple[float, Event]]:
    return _known(data.splitlines())


def _known(lines: Iterable[bytes]) -> Iterator[tuple[float, Event]]:
    """Passes over what another version wrote and this one does not know, and a torn last line, which a kill leaves."""
    for line in lines:
        try:
            told = json.loads(line)
            kind = _KINDS[told["e"]]
            event = kind(**{k: v for k, v in told.items() if k in kind._fields})
            at = float(told.get("t", 0.0))
        except (ValueError, TypeError, LookupError):
            continue
        yield at, event


def pack_kept(line: bytes, journal: bytes) -> bytes:
    return b"".join(zstd.codec().compress(part, 3) for part in (line, journal))


def line_of(data: bytes) -> bytes:
    """Raises `ZstdError`, as `journal_of` does."""
    return _first(data, _LINE)[0]


def journal_of(data: bytes) -> bytes:
    return _first(_first(data, _LINE)[1], LONGEST)[0]


def _first(data: bytes, longest: int) -> tuple[bytes, bytes]:
    """The contents of the first frame, and what follows it."""
    frame = zstd.read_frame(data)
    if frame.content_size is None or frame.content_size > longest:
        raise zstd.ZstdError("longer than it may be")
    end = zstd.end_of(frame, data)
    return zstd.codec().decompress(data[:end], frame.content_size), data[end:]
