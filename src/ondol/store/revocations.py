"""What a store's owner has taken back: one small file each, in `<store>/revoked`. Created whole, never changed.

    {"format": 1, "kind": "run", "value": "1234", "before": null, "why": "…", "time": 1763240000}

Counts if the file and its directory belong to root, the store's owner or the reader, and nobody else can write them.
"""

import json
import os
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from ondol.errors import StoreError
from ondol.foreign_text import matches
from ondol.host import files
from ondol.store.api import Stored

FOLDER = "revoked"
#: `run` and `commit` are what the maker said of itself; the others are evidence.
KINDS = ("run", "commit", "owner", "scope", "key", "entry")
_FORMAT = 1
_MAX_BYTES = 4096


class Revocation(NamedTuple):
    kind: str
    value: str
    #: Only what was published before this; by the clock, and the word, of whoever published it.
    before: float | None = None
    why: str = ""
    time: float = 0.0
    name: str = ""

    def __str__(self) -> str:
        when = "" if self.before is None else f", published before {int(self.before)}"
        return f"{self.kind} {self.value}{when}" + (f" ({self.why})" if self.why else "")


def read(root: int, where: str, believed: Collection[int]) -> tuple[Revocation, ...]:
    """All that count here. Raises `StoreError` if that cannot be told: then nothing of the store may be used."""
    name = ""
    found: list[Revocation] = []
    try:
        with files.opened(files.open_dir(FOLDER, root)) as folder:
            names = files.list_names(folder) if _counts(os.fstat(folder), believed) else []
            for name in names:
                if name.startswith("."):
                    continue  # half-written, or of a writer that died
                try:
                    data, status = files.read_regular(name, _MAX_BYTES, dir_fd=folder)
                except FileNotFoundError:
                    continue  # undone at this moment
                found += [_parse(name, data)] if _counts(status, believed) else []
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"what was revoked in the store at {where} cannot be told"
        place = f"{FOLDER}/{name}".rstrip("/")
        raise StoreError(what, because=f"{place}: {error}", hint=f"mend or remove {where}/{place}, as its owner")
    return tuple(found)


def _parse(name: str, data: bytes) -> Revocation:
    fields: dict[str, Any] = json.loads(data)
    before, kind = fields["before"], str(fields["kind"])
    if fields["format"] != _FORMAT or kind not in KINDS:
        raise ValueError("of a kind that this version does not know")
    when = None if before is None else float(before)
    return Revocation(kind, str(fields["value"]), when, str(fields["why"]), float(fields["time"]), name)


def _counts(status: os.stat_result, believed: Collection[int]) -> bool:
    return status.st_uid in believed and not status.st_mode & files.OTHERS_CAN_WRITE


def add(root: int, revocation: Revocation) -> str:
    """Make it count for every reader from now on; returns its name. Raises `OSError`."""
    name = files.random_name()[:12]
    data = json.dumps({"format": _FORMAT, **revocation._asdict(), "name": name}).encode()
    with files.opened(files.make_dir(FOLDER, 0o755, dir_fd=root)) as folder:
        files.write_whole(name, data + b"\n", 0o644, folder, sync=True)
        files.fsync_dir(folder)
        files.fsync_dir(root)
    return name


def undo(root: int, name: str) -> None:
    """Raises `OSError`."""
    with files.opened(files.open_dir(FOLDER, root)) as folder:
        os.unlink(os.path.basename(name), dir_fd=folder)
        files.fsync_dir(folder)


def reason(records: Iterable[Revocation], stored: Stored, manifest: Any) -> str:
    """Which of these takes this entry back; empty if none does."""
    for record in records:
        if (record.before is None or stored.published < record.before) and _names(record, stored, manifest):
            return str(record)
    return ""


def _names(record: Revocation, stored: Stored, manifest: Any) -> bool:
    kind, value = record.kind, record.value
    if kind == "scope":
        return matches(stored.address.scope, value)
    if kind == "entry":
        return value in (stored.address.key, "/".join(stored.address))
    said = {"owner": stored.owner, "key": manifest.signer}.get(kind, manifest.provenance.get(kind, ""))
    return str(said) == value or (kind == "commit" and len(value) >= 7 and str(said).startswith(value))
