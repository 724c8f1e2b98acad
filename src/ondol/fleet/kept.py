"""The journals of past runs: in the user's state directory, or in one that many users and machines share.

Written as entries of a store are: each run is one new file, whole under its name or not there, and never changed, so
there is nothing to lock. Who may be believed is judged by the owner of each open file, by whoever reads. In a shared
directory everybody removes what is too old of his own files only.
"""

import hashlib
import io
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ondol.errors import OndolError
from ondol.fleet import journal as journals
from ondol.fleet import past
from ondol.fleet.journal import KEPT
from ondol.fleet.record import RunRecord, added_up
from ondol.host import bounded, files, filesystem, identity
from ondol.host.zstd import ZstdError

#: How long they are kept, how many, and how many bytes altogether; of one user.
LONGEST, MOST, LARGEST = 90 * 86400.0, 1000, 2 << 30
#: What readers look at in a shared directory: names, and files of those that they believe, the newest first.
_NAMES, _READ, _LARGEST_FILE = 20_000, 1000, 256 << 20
_NAME = re.compile(r"\d{8}-\d{10}-[0-9a-f]{12}" + re.escape(KEPT))
_OVER, _ROOM = (re.compile(rb'\{"t": [\d.e+-]+, "e": "%s"' % word) for word in (b"over", b"room"))
#: Seconds for a file server to answer at all.
_PATIENCE = 10.0
Believes = Callable[[int], bool]


def ours(owner: int) -> bool:
    """The least that is believed: our own and root's."""
    return owner in (0, os.geteuid())


def folder() -> str:
    return os.path.join(identity.user_state_dir(), "ondol", "history")


def keep(journal: Path, where: str = "", record: RunRecord | None = None) -> str:
    """Keep the last run in this journal; returns what is wrong, in words, for this never fails a run.

    `record`: what that run adds up to, of who knows it already and need not read it again.
    """
    try:
        data = _last_run(journal)
        record = record or added_up(journals.events_in(data))
        if not record.items:
            return ""  # nothing was run: help was asked for, or no test was found
        # By time, down to what a journal tells, and unique.
        second, rest = time.strftime("%Y%m%d-%H%M%S", time.gmtime(record.first)), int(record.first % 1 * 10_000)
        name = f"{second}{rest:04d}-{hashlib.sha256(data).hexdigest()[:12]}{KEPT}"
        line = past.to_line(past.of_record(record, name, os.uname().nodename))
        _write(where, name, journals.pack_kept(line, data))
    except (OSError, OndolError, ZstdError, ValueError, LookupError, TypeError) as error:
        why, fix = getattr(error, "strerror", None) or str(error), "--history DIR, one that you can write"
        return f"this run is not in the history in {where or folder()}: {why} (fix: {fix})"
    return ""


def _last_run(journal: Path) -> bytes:
    """A file may hold several runs; what follows a run's last line is the next one's, except the story of its room."""
    data, _ = files.read_regular(str(journal), journals.LONGEST)
    start, at, over = 0, 0, False
    for line in io.BytesIO(data):  # one at a time: a list of all of them is twice as large as the journal
        if over and not _ROOM.match(line):
            start, over = at, False
        over = over or bool(_OVER.match(line))
        at += len(line)
    return data[start:]


def _write(where: str, name: str, data: bytes) -> None:
    """Where others look too, everybody may read it: who names such a directory shares what his tests print."""
    os.makedirs(where or os.path.dirname(folder()), mode=0o700, exist_ok=True)
    here = os.open(where, os.O_RDONLY | os.O_DIRECTORY) if where else files.open_private(folder(), make=True)
    temporary = f".{files.random_name()}"
    try:
        files.write_new(temporary, data, 0o644 if where else 0o600, here, sync=True)
        files.link_new(temporary, here, name, here)
        _clean(here, time.time(), dry_run=False)
    finally:
        files.unlink_quietly(temporary, dir_fd=here)
        os.close(here)


def clean(now: float, where: str = "", *, dry_run: bool = False) -> list[str]:
    """Remove what is too old, too many or too much of ours; returns what it was."""
    with _opened(where) as here:
        gone = [] if here is None else _clean(here, now, dry_run=dry_run)
    return [os.path.join(where or folder(), name) for name in gone]


def _clean(here: int, now: float, *, dry_run: bool) -> list[str]:
    gone, size = [], 0
    own = [(name, status) for name, status in _there(here) if status.st_uid == os.geteuid()]
    for number, (name, status) in enumerate(own):
        size += status.st_size
        if now - status.st_mtime > LONGEST or number >= MOST or size > LARGEST:
            gone.append(name)
            if not dry_run:
                files.unlink_quietly(name, dir_fd=here)
    return gone


@contextmanager
def _opened(where: str) -> Iterator[int | None]:
    """None if there is nothing yet."""
    path, here = where or folder(), None
    if filesystem.is_network(filesystem.fs_type(path)):
        try:
            bounded.call(lambda _report: os.path.lexists(path), _PATIENCE)
        except OndolError as error:  # a dead server would hold us for ever
            raise OndolError(f"the history in {path} does not answer", because=error.line(), hint="--history DIR")
    try:
        here = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OndolError(f"the history in {path} cannot be read", because=error.strerror or "", hint="--history DIR")
    try:
        yield here
    finally:
        if here is not None:
            os.close(here)


def _there(here: int | None) -> Iterator[tuple[str, os.stat_result]]:
    """The newest first, by their names: those of a shared directory come from many clocks."""
    if here is None:
        return
    with os.scandir(here) as entries:
        names = [entry.name for _, entry in zip(range(_NAMES), entries, strict=False)]
    for name in sorted(filter(_NAME.fullmatch, names), reverse=True):
        try:
            yield name, os.stat(name, dir_fd=here, follow_symlinks=False)
        except OSError:
            continue  # somebody cleans at this moment


def runs(where: str = "", believes: Believes = ours) -> tuple[list[past.PastRun], int]:
    """What past runs tell, the oldest first, and how many files were passed over."""
    found: list[past.PastRun | None] = []
    with _opened(where) as here:
        for name, _ in _there(here):
            found.append(_read(here, name, believes))
            if len(found) >= _READ and sum(map(bool, found)) >= _READ:
                break
    known = [run for run in found if run]
    return known[::-1], len(found) - len(known)


def _read(here: int | None, name: str, believes: Believes) -> past.PastRun | None:
    """The first line of a file that one believed user alone can write."""

    def judge(_: int, status: os.stat_result) -> None:
        if status.st_mode & files.OTHERS_CAN_WRITE or not believes(status.st_uid):
            raise PermissionError(1, "not believed", name)

    try:
        data, _ = files.read_regular(name, _LARGEST_FILE, here, judge)
        return past.from_line(journals.line_of(data), name.removesuffix(KEPT))
    except (OSError, ZstdError):
        return None


def find(name: str, where: str = "", believes: Believes = ours) -> Path | None:
    """The file of the run of this name, or of the only one whose name begins so."""
    with _opened(where) as here:
        meant = [one for one, _ in _there(here) if one.startswith(name) and _read(here, one, believes)]
    return Path(where or folder()) / meant[0] if len(meant) == 1 else None


def latest(where: str = "", believes: Believes = ours, root: str = "") -> Path | None:
    """The newest run; with `root`, of this project's if there is one."""
    known = runs(where, believes)[0]
    best = [run for run in known if root in ("", run.root)] or known
    return Path(where or folder()) / (best[-1].name + KEPT) if best else None
