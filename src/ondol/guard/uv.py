"""uv's cache: unpacked wheels in `archive-v0`, and the names that lead to them.

    archive-v0/<id>/                                an unpacked wheel; or the environment of a `uvx`, without RECORD
    wheels-v7/index/<index>/alpha/1.0-py3-none-any  a link to an archive (an absolute one until 0.11)
                    …/alpha/1.0-py3-none-any.http     says which archive, and how fresh it is
                    …/alpha/1.0-py3-none-any.msgpack  the package's metadata
    sdists-v10/…/revision.http, …/<revision>/*.whl  what was built here, with links like those above
    .lock                                           held by every uv (flock, shared; since 0.8.19)

uv trusts what is there: an archive that has lost its METADATA fails every later install, one that has lost a module is
installed without a word. Bucket numbers change with versions; the layouts were checked from 0.4.30 to 0.13.7.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ondol.guard import msgpack, wheel_record
from ondol.guard.healer import BadEntry, Healer, Progress, launched
from ondol.host import files, identity

_BUCKETS = re.compile(
    r"(archive|binaries|builds|built-wheels|environments|flat-index|git|interpreter|osv|python|sdists|simple|wheels)-v\d+"
)
_ANY = re.compile(r"(?s).*")
_ARCHIVES = re.compile(r"archive-v\d+")
_POINTING = re.compile(r"(built-wheels|sdists|wheels)-v\d+")
_TORN = (".http", ".msgpack", ".rev")
_MAX_POINTER = 16 << 20
_ALL = os.R_OK | os.W_OK | os.X_OK


class Uv(Healer):
    name = "uv"
    own_lock = ".lock"
    not_entries = (".lock", ".git", ".gitignore", "CACHEDIR.TAG")

    def recognises(self, cache: str) -> bool:
        return bool(_children(cache, _BUCKETS))

    def examine(self, cache: str, progress: Progress) -> Iterator[BadEntry]:
        names = _Names(ours=_is_ours(cache))
        for bucket in _children(cache, _POINTING):
            yield from names.read(bucket)
        yield from names.bad()
        yield from _closed_to_us(cache) if _is_ours(cache) else ()
        archives = [path for bucket in _children(cache, _ARCHIVES) for path in _children(bucket)]
        for number, path in enumerate(archives):
            progress(number, len(archives))
            leading = names.to(path)
            why = _fault_in_archive(path, wanted=bool(leading))
            if why and os.path.lexists(path):
                yield BadEntry(path, f"{why} ({_package(path, leading)})", leading)
        progress(len(archives), len(archives))

    def asks(self, argv: Sequence[str]) -> list[str]:
        if start := launched(argv, "uv"):
            return [*start, "cache", "dir"]
        if start := launched(argv, "uvx"):
            return [os.path.join(os.path.dirname(start[0]), "uv"), "cache", "dir"]
        return []

    def usual_place(self, env: Mapping[str, str]) -> str:
        return env.get("UV_CACHE_DIR", "") or os.path.join(identity.user_cache_dir(), "uv")


def _children(folder: str, pattern: re.Pattern[str] = _ANY) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if pattern.fullmatch(name)]
    except OSError:
        return []


def _fault_in_archive(path: str, *, wanted: bool) -> str:
    """`wanted`: something leads there as to a wheel."""
    try:
        inside = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not wanted and not any(name.endswith(".dist-info") for name in inside):
        # No wheel, as far as anybody knows: the environment of a `uvx`, in which a program may be running; something
        # that is still being made; a thing of a version to come.
        return ""
    return wheel_record.fault_in_folder(path)


def _package(archive: str, leading: tuple[str, ...]) -> str:
    """What people call it; from its own name, or from where the names that lead there stand."""
    named = [os.path.basename(path).removesuffix(".dist-info") for path in _children(archive) if path.endswith("-info")]
    return next(iter([*named, *(os.path.basename(os.path.dirname(path)) for path in leading)]), "unknown")


class _Names:
    """The names that lead to archives, and the small files beside them."""

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours
        #: Links to archives, by the archive's own name.
        self._links: dict[str, list[str]] = {}
        self._dangling: list[str] = []
        #: bucket → file → content
        self._files: dict[str, dict[str, bytes]] = {}

    def read(self, bucket: str) -> Iterator[BadEntry]:
        """Everything in a bucket; what cannot be read, or holds a torn wheel, is bad at once.

        So is a directory of a cache of ours in which another user (`sudo uv …`, once) left us no room to work.
        """
        contents = self._files.setdefault(bucket, {})
        for path in _walk(bucket):
            if os.path.islink(path):
                self._link(path)
            elif os.path.isdir(path):
                if self._ours and not _may(path, _ALL):
                    yield BadEntry(path, _whose(path))
            elif path.endswith(".whl") and os.path.isfile(path):
                if (why := wheel_record.fault_in_file(path)) and os.path.lexists(path):
                    yield BadEntry(path, why)
            elif path.endswith(_TORN):
                try:
                    contents[path] = files.read_regular(path, _MAX_POINTER)[0]
                except FileNotFoundError:
                    continue
                except OSError as error:
                    yield BadEntry(path, f"it cannot be read: {error.strerror or error}")

    def _link(self, path: str) -> None:
        try:
            target = os.readlink(path)
        except OSError:
            return
        folder, name = os.path.split(target)
        if not _ARCHIVES.fullmatch(os.path.basename(folder)):
            return
        if os.path.exists(path):
            self._links.setdefault(name, []).append(path)
        elif not os.path.exists(there := os.path.join(os.path.dirname(path), folder)) or _may(there, os.X_OK):
            self._dangling.append(path)  # gone, and not only in a directory that we may not look into

    def bad(self) -> Iterator[BadEntry]:
        for link in self._dangling:
            if os.path.lexists(link) and not os.path.exists(link):
                yield BadEntry(link, "it leads to an archive that is gone", _beside(link))
        for contents in self._files.values():
            yield from _torn(contents)

    def to(self, archive: str) -> tuple[str, ...]:
        """Links to an archive, and the files that name it."""
        name = os.path.basename(archive)
        links = self._links.get(name, [])
        found = {*links, *(path for link in links for path in _beside(link))}
        word = name.encode()
        for contents in self._files.values():
            found |= {path for path, data in contents.items() if word in data and not path.endswith(".msgpack")}
        return tuple(sorted(found))


def _beside(link: str) -> tuple[str, ...]:
    return tuple(link + end for end in (".http", ".rev") if os.path.lexists(link + end))


def _walk(folder: str) -> Iterator[str]:
    """Every name below, links not followed; unpacked sources are left out."""
    for path in _children(folder):
        if os.path.isdir(path) and not os.path.islink(path):
            yield from () if os.path.basename(path) == "src" else (path, *_walk(path))
        else:
            yield path


def _torn(contents: Mapping[str, bytes]) -> Iterator[BadEntry]:
    """Files of one bucket that end too early. If not one of them is whole, it is we who do not know their format."""
    whole = {path: _is_whole(data) for path, data in contents.items()}
    for path, good in whole.items():
        if not good and (any(whole.values()) or not contents[path]):
            yield BadEntry(path, "it is empty" if not contents[path] else "it is cut off")


def _is_whole(data: bytes) -> bool:
    """One value; in files about downloads followed by a cache policy and a length: of that (to 0.12), of the value."""
    try:
        _, end = msgpack.decode(data)
    except ValueError:
        return False
    if end == len(data):
        return True
    if len(data) < end + 8:
        return False
    length = int.from_bytes(data[-8:], "little")
    return length == end or len(data) - 8 - length == end


def _closed_to_us(cache: str) -> Iterator[BadEntry]:
    """The same for the buckets themselves."""
    for bucket in _children(cache, _BUCKETS):
        lock = os.path.join(bucket, ".git")  # opened for writing by every uv that starts
        if not _may(bucket, _ALL):
            yield BadEntry(bucket, _whose(bucket))
        elif os.path.lexists(lock) and not _may(lock, os.W_OK):
            yield BadEntry(lock, _whose(lock))


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _may(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=True)


def _whose(path: str) -> str:
    try:
        return f"it belongs to user {os.lstat(path).st_uid} and is closed to us"
    except OSError as error:
        return f"it is closed to us: {error.strerror}"
