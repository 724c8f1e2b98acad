"""`ondol-store.json`: the one file that makes a directory a store, and says who may publish for everybody.

Written once, by `ondol store init` (or for a user's own default store by its first job), never changed by jobs.
Whether a reader believes its list of writers depends on who owns the file: see `trust.owners`.
"""

from __future__ import annotations

import os

from ondol.errors import StoreError, StoreFormat, StoreMissing
from ondol.host import files
from ondol.light import Any, Record

NAME = "ondol-store.json"
LANES = "lanes"
FORMAT = 1
_MAX_BYTES = 1 << 16
#: A store that names nobody, as every user's own: recognised without the JSON parser, which takes longer to import than
#: all the rest of opening a store, before every job.
_BEFORE_ID = b'{"format": 1, "id": "'
_AFTER_ID = b'", "writers": {"uids": [], "groups": [], "any": false}}\n'


class Writers(Record):
    """Whose lanes everybody may read."""

    uids: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    anyone: bool = False

    def __str__(self) -> str:
        if self.anyone:
            return "any"
        return ",".join([*map(str, self.uids), *(f"@{group}" for group in self.groups)]) or "nobody named"


class Marker(Record):
    identity: str
    writers: Writers
    #: The owner of the file, as the opened descriptor showed it.
    owner: int


def parse_writers(text: str) -> Writers:
    """`1000,1001,@ci` or `any`, as typed by a person."""
    if text.strip() == "any":
        return Writers(anyone=True)
    uids: list[int] = []
    groups: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.startswith("@") and len(word) > 1:
            groups.append(word[1:])
        elif word.isdigit() and int(word) < 2**32 - 1:
            uids.append(int(word))
        else:
            raise ValueError(word)
    return Writers(tuple(uids), tuple(groups))


def read(root: int, where: str) -> Marker:
    """The marker of an open store directory."""
    try:
        data, status = files.read_regular(NAME, _MAX_BYTES, dir_fd=root)
    except FileNotFoundError:
        raise StoreMissing(f"no store at {where}", because=f"it has no {NAME}", hint=f"ondol store init {where}")
    except OSError as error:
        raise StoreError(
            f"the store at {where} cannot be read",
            because=f"{NAME}: {error.strerror or error}",
            hint=f"make {where} readable for uid {os.geteuid()} (chmod -R a+rX)",
        )
    identity = data[len(_BEFORE_ID) : len(data) - len(_AFTER_ID)]
    if data == _BEFORE_ID + identity + _AFTER_ID and identity.isalnum():
        return Marker(identity.decode(), Writers(), status.st_uid)
    import json

    try:
        fields = json.loads(data)
        version = fields["format"]
        if type(version) is int and version > FORMAT:
            raise StoreFormat(
                f"the store at {where} has format {version}",
                because=f"this version of Ondol speaks format {FORMAT}",
                hint="pip install --upgrade ondol, or name another --store",
            )
        return Marker(str(fields["id"]), _writers(fields["writers"]), status.st_uid)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"the store at {where} cannot be read",
            because=f"{NAME} is damaged ({type(error).__name__})",
            hint=f"restore {NAME}, or move {where} away and run: ondol store init {where}",
        )


def _writers(fields: dict[str, Any]) -> Writers:
    uids = tuple(uid for uid in fields["uids"] if type(uid) is int)
    return Writers(uids, tuple(map(str, fields["groups"])), fields["any"] is True)


def create(path: str, writers: Writers, *, shared: bool) -> bool:
    """Make a store; False if one is there already. `shared`: let other users add their own lanes, as /tmp does.

    Safe to race: the marker is linked into place whole and never replaced, and the lanes directory exists before it.
    """
    _make_directories(path)
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _exists(root):
            return False
        os.close(files.make_dir(LANES, 0o1777 if shared else 0o755, dir_fd=root))
        if shared:
            _open_to_all(root)
        # Durable before the marker is: after power loss a marker without lanes would be a store that can neither be
        # used nor made again.
        files.fsync_dir(root)
        return _write_marker(root, writers)
    finally:
        os.close(root)


def _make_directories(path: str) -> None:
    """As `os.makedirs`, and the new names survive power loss."""
    parents = []
    missing = os.path.abspath(path)
    while not os.path.isdir(missing):
        missing = os.path.dirname(missing)
        parents.append(missing)
    os.makedirs(path, exist_ok=True)
    for parent in parents:
        try:
            fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            continue  # we may create in it and not read it: its owner chose
        try:
            files.fsync_dir(fd)
        finally:
            files.close_quietly(fd)


def _exists(root: int) -> bool:
    try:
        os.stat(NAME, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _open_to_all(root: int) -> None:
    """Readers of any UID must be able to pass through the root, under umask 077 too."""
    status = os.fstat(root)
    if status.st_uid == os.geteuid():
        os.fchmod(root, (status.st_mode & 0o7777) | 0o555)


def _write_marker(root: int, writers: Writers) -> bool:
    import json

    fields = {
        "format": FORMAT,
        "id": files.random_name(),
        "writers": {"uids": list(writers.uids), "groups": list(writers.groups), "any": writers.anyone},
    }
    temporary = f".{NAME}.{files.random_name()}"
    try:
        files.write_new(temporary, json.dumps(fields).encode() + b"\n", 0o644, dir_fd=root, sync=True)
        created = files.link_new(temporary, root, NAME, root)
    finally:
        files.unlink_quietly(temporary, dir_fd=root)
    files.fsync_dir(root)
    return created
