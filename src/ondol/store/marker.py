"""`ondol-store.json`: the one file that makes a directory a store, and says who may publish what for everybody.

Written by `ondol store init` (or for a user's own default store by its first job), replaced as a whole by the commands
that change it, never by jobs. Whether a reader believes it depends on who owns the file: see `trust.owners`.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
from collections.abc import Callable
from shlex import quote
from typing import Any, NamedTuple

from ondol.errors import StoreError, StoreMissing
from ondol.foreign_text import is_number, is_pattern, matches
from ondol.host import files

NAME = "ondol-store.json"
LANES = "lanes"
#: 2 since writers can be limited to scopes and signatures demanded. A marker that does neither is still written as 1,
#: for readers of any age; one that does must not be read by those who would overlook it.
FORMAT = 2
_MAX_BYTES = 1 << 16
ANY = "any"


class Writers(NamedTuple):
    """Whose lanes everybody may read: UIDs, @GROUPs or `any`, in every scope; with `:PATTERN` in those scopes only."""

    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(self.words) or "nobody"

    def kinds(self) -> dict[str, Any]:
        """For programs: those of every scope by what they are, and (who, pattern) of the others."""
        everywhere = [word for word in self.words if ":" not in word]
        return {
            "uids": [int(word) for word in everywhere if is_number(word)],
            "groups": [word[1:] for word in everywhere if word.startswith("@")],
            "anyone": ANY in everywhere,
            "limited": [word.partition(":")[::2] for word in self.words if ":" in word],
        }

    def __add__(self, other: Writers) -> Writers:  # type: ignore[override]
        return Writers(tuple(dict.fromkeys((*self.words, *other.words))))

    def __sub__(self, other: Writers) -> Writers:
        """Whoever is named without a scope loses all: an administrator who removes a UID must not leave it `main`."""
        gone = set(other.words)
        return Writers(tuple(word for word in self.words if not gone & {word, word.partition(":")[0]}))


class Key(NamedTuple):
    """A public key whose signatures count for everybody, in these scopes."""

    public: str
    scopes: tuple[str, ...] = ("*",)
    comment: str = ""


class Marker(NamedTuple):
    identity: str
    writers: Writers
    #: The owner of the file, as the opened descriptor showed it.
    owner: int
    #: Patterns of scopes whose entries must be signed.
    signed: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()

    def wants_signature(self, scope: str) -> bool:
        return any(matches(scope, pattern) for pattern in self.signed)


def parse_writers(text: str, *, known: bool = False) -> Writers:
    """`1000,alice,@ci,3001:pr-*` or `any`, as typed by a person. Raises `ValueError` with the word and why.

    `known`: it comes from a marker; whether this machine knows the groups is not asked again.
    """
    words: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        who, colon, pattern = word.partition(":")
        who = _somebody(who, known)
        if colon and not is_pattern(pattern):
            raise ValueError(word, "has no scope or pattern of scopes behind the colon, such as main or pr-*")
        words.append(who + colon + pattern)
    return Writers(tuple(dict.fromkeys(words)))


def _somebody(word: str, known: bool) -> str:
    """The UID of a user, by number or name; a group and `any` as they are."""
    if is_number(word) and int(word) < 2**32 - 1:
        return str(int(word))
    if word == ANY or (known and word.startswith("@")):
        return word
    try:
        if word.startswith("@"):
            return f"@{grp.getgrnam(word[1:]).gr_name}"
        return str(pwd.getpwnam(word).pw_uid)
    except (KeyError, ValueError):
        kind = "group" if word.startswith("@") else "user"
        raise ValueError(word, f"is neither a UID nor a {kind} that this machine knows")


def is_open(status: os.stat_result) -> bool:
    """Whether others than the owner can change this: a file's contents, or which names a directory has."""
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return bool(status.st_mode & files.OTHERS_CAN_WRITE) and not sticky


def mend(path: str, status: os.stat_result) -> str:
    """The command that closes it. Everybody may add to `lanes`, as to /tmp, and nobody rename what others added."""
    change = "+t" if os.path.basename(path) == LANES else "go-w"
    return f"{'' if os.geteuid() in (0, status.st_uid) else 'sudo '}chmod {change} {quote(path)}"


def check_closed(path: str, status: os.stat_result) -> None:
    """Refuse a store whose word is anybody's: whoever can write its marker names himself a writer for everybody."""
    if is_open(status):
        who = "everybody" if status.st_mode & stat.S_IWOTH else f"every member of group {status.st_gid}"
        raise StoreError(
            f"the store is not used: {path} can be changed by {who}",
            because=f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}",
            hint=mend(path, status),
        )


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
    check_closed(os.path.join(where, NAME), status)
    try:
        fields = json.loads(data)
        version = fields["format"]
        if type(version) is int and version > FORMAT:
            raise StoreError(
                f"the store at {where} has format {version}",
                because=f"this version of Ondol speaks format {FORMAT}",
                hint="pip install --upgrade ondol, or name another --store",
            )
        signed = tuple(map(_pattern, fields.get("require_signature", ())))
        named = fields.get("keys", ())
        keys = tuple(Key(str(k["key"]), tuple(map(_pattern, k["scopes"])), str(k["comment"])) for k in named)
        return Marker(str(fields["id"]), _writers(fields["writers"]), status.st_uid, signed, keys)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"the store at {where} cannot be read",
            because=f"{NAME} is damaged ({type(error).__name__})",
            hint=f"restore {NAME}, or move {where} away and run: ondol store init {where}",
        )


def _writers(fields: dict[str, Any]) -> Writers:
    uids = [str(uid) for uid in fields["uids"] if type(uid) is int]
    groups = [f"@{group}" for group in fields["groups"]]
    limited = [f"{who}:{_pattern(one)}" for who, some in fields.get("scopes", {}).items() for one in some]
    return Writers((*uids, *groups, *[ANY] * (fields["any"] is True), *limited))


def _pattern(text: object) -> str:
    if not is_pattern(text):
        raise ValueError(text)
    return str(text)


def create(path: str, writers: Writers, *, shared: bool, signed: tuple[str, ...] = ()) -> bool:
    """Make a store; False if one is there already. `shared`: let other users add their own lanes, as /tmp does.

    Safe to race: the marker is linked into place whole and never replaced, and the lanes directory exists before it.
    """
    _make_directories(path)
    with files.opened(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        if exists(root):
            return False
        _set_rights(root, shared)
        check_closed(path, os.fstat(root))
        os.close(files.make_dir(LANES, 0o1777 if shared else 0o755, dir_fd=root))
        # Durable before the marker is: after power loss a marker without lanes would be a store that can neither be
        # used nor made again.
        files.fsync_dir(root)
        return _write_marker(root, Marker(files.random_name(), writers, os.geteuid(), signed), replace=False)


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
        with files.opened(fd):
            files.fsync_dir(fd)


def exists(root: int) -> bool:
    """Whether this open directory is a store."""
    try:
        os.stat(NAME, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _set_rights(root: int, shared: bool) -> None:
    """Readers of any UID must be able to pass through the root, under umask 077 too; nobody else writes in it, under
    umask 002 or below a setgid directory neither.
    """
    status = os.fstat(root)
    if status.st_uid == os.geteuid():
        mode = stat.S_IMODE(status.st_mode) | (0o555 if shared else 0)
        os.fchmod(root, mode & ~files.OTHERS_CAN_WRITE if is_open(status) else mode)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreMissing(f"no store at {path}", because=error.strerror or "", hint=f"ondol store init {path}")


def look(path: str) -> Marker:
    """The marker alone, for who administers a store."""
    with files.opened(_open(path)) as root:
        return read(root, path)


def rewrite(path: str, change: Callable[[Marker], Marker]) -> Marker:
    """Replace the marker as a whole: readers see the old one or the new one. For its owner, and root for its owner."""
    try:
        with files.opened(_open(path)) as root:
            found = read(root, path)
            if os.geteuid() not in (0, found.owner):
                # Renamed into place it would be ours, and readers who believe its owner would believe it no longer.
                raise PermissionError(1, f"its {NAME} belongs to uid {found.owner}")
            changed = change(found)
            _write_marker(root, changed, replace=True)
            return changed
    except OSError as error:
        because, hint = error.strerror or str(error), "run this as the owner of the store, or as root"
        raise StoreError(f"the store at {path} cannot be changed", because=because, note="it is as it was", hint=hint)


def _write_marker(root: int, marker: Marker, *, replace: bool) -> bool:
    writers = marker.writers.kinds()
    fields: dict[str, Any] = {
        "format": FORMAT if writers["limited"] or marker.signed or marker.keys else 1,
        "id": marker.identity,
        "writers": {"uids": writers["uids"], "groups": writers["groups"], "any": writers["anyone"]},
    }
    for who, pattern in writers["limited"]:
        fields["writers"].setdefault("scopes", {}).setdefault(who, []).append(pattern)
    if marker.signed or marker.keys:
        fields["require_signature"] = list(marker.signed)
        fields["keys"] = [{"key": key.public, "scopes": key.scopes, "comment": key.comment} for key in marker.keys]
    temporary = f".{NAME}.{files.random_name()}"
    try:
        files.write_new(temporary, json.dumps(fields).encode() + b"\n", 0o644, dir_fd=root, sync=True)
        if os.geteuid() != marker.owner:
            os.chown(temporary, marker.owner, -1, dir_fd=root, follow_symlinks=False)
        if replace:
            os.rename(temporary, NAME, src_dir_fd=root, dst_dir_fd=root)
        done = replace or files.link_new(temporary, root, NAME, root)
    finally:
        files.unlink_quietly(temporary, dir_fd=root)
    files.fsync_dir(root)
    return done
