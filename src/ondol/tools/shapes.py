"""Most caches are made of a few shapes: files of one kind of name, directories that are complete with one file in them.
A tool that is no more than that states its shapes and inherits the rest of the contract of `ondol.tools.api`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping

from ondol import words
from ondol.errors import EntryRefused
from ondol.host import identity
from ondol.host.identity import Host
from ondol.light import Record
from ondol.tools.api import ANYWHERE, CacheDir, Found, Refused
from ondol.tools.table import Row

Listing = dict[str, os.stat_result]


class Shape(Record):
    """One kind of unit: what travels together and is useless in parts."""

    #: The unit's path relative to the cache directory, as a regular expression; a group `title` names it to people.
    path: str
    #: A directory with everything below it, instead of one file.
    folder: bool = False
    #: For a directory: files below it, as expressions, without any of which it is not complete. The first one is the
    #: file that the tool surely reads when it uses the unit.
    needs: tuple[str, ...] = ()
    #: Machine code for the processor at hand, or anything else that another machine may not be able to run.
    host_code: bool = False


class Shaped:
    """A tool that consists of shapes. Subclasses state `row`, `shapes` and `ignored`, and may sharpen the rest."""

    row: Row
    shapes: tuple[Shape, ...] = ()
    #: Paths that are neither entries nor worth a word: temporary files, locks, statistics.
    ignored: tuple[str, ...] = ()

    # -- what subclasses may sharpen -------------------------------------------------------------------------------

    def check(self, name: str, data: bytes) -> None:
        """Raises `EntryRefused` for a file that its own contents show to be torn. An empty one always is."""

    def fingerprint(self, shape: Shape, names: tuple[str, ...], host: Host) -> str:
        """What the tool's own key does not cover."""
        del names
        return host_code(host) if shape.host_code else ANYWHERE

    def accepts(self, fingerprint: str, host: Host) -> bool:
        return fingerprint == ANYWHERE or fingerprint == host_code(host)

    def made_by(self, contents: Mapping[str, bytes]) -> str:
        del contents
        return ""

    # -- the contract ----------------------------------------------------------------------------------------------

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        claimed: tuple[str, ...] = ()
        for folder, listing in cache.tree():
            if claimed and _is_below(folder, claimed[-1]):
                continue
            if self._is_ignored(folder):
                claimed = (folder,)
                continue
            if isinstance(listing, OSError):
                yield Refused("unreadable", folder or ".", listing.strerror or str(listing))
                continue
            shape, match = self._matching(folder, is_folder=True)
            if shape and match:
                claimed = (folder,)
                yield self._folder_unit(cache, host, folder, shape, _title(match, folder))
            else:
                yield from self._single_files(host, folder, listing)

    def _single_files(self, host: Host, folder: str, listing: Listing) -> Iterator[Found | Refused]:
        for name, status in listing.items():
            path = f"{folder}/{name}" if folder else name
            if self._is_ignored(path):
                continue
            shape, match = self._matching(path, is_folder=False)
            if not shape or not match:
                yield Refused("unknown", path, f"not a file that {self.row.name} is known to keep")
            elif status.st_size == 0:
                yield Refused("torn", path, "empty")
            else:
                fingerprint = self.fingerprint(shape, (path,), host)
                yield Found(_key(path), fingerprint, "", (path,), _title(match, path), 0.0)

    def _folder_unit(self, cache: CacheDir, host: Host, folder: str, shape: Shape, title: str) -> Found | Refused:
        names: list[str] = []
        for place, listing in cache.tree(folder):
            if isinstance(listing, OSError):
                return Refused("unreadable", place, listing.strerror or str(listing))
            names += [f"{place}/{name}" for name in listing if not self._is_ignored(f"{place}/{name}")]
        for need in shape.needs:
            if not any(re.fullmatch(need, name[len(folder) + 1 :]) for name in names):
                return Refused("incomplete", folder, f"no {need}" if names else "empty")
        if not names:
            return Refused("incomplete", folder, "empty")
        paths = tuple(sorted(names))
        return Found(_key(folder), self.fingerprint(shape, paths, host), "", paths, title, 0.0)

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        del found, cache
        if not data and not self._may_be_empty(name):
            raise EntryRefused(f"{name} is empty", because="torn")
        self.check(name, data)
        return data

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        del names, folder
        if not self._belongs(name):
            raise EntryRefused(f"{name!r:.80} is not a file that {self.row.name} keeps", because="outside")
        return data

    def folder(self, key: str) -> str:
        del key
        return ""

    def witness(self, names: tuple[str, ...]) -> str:
        for shape in self.shapes:
            for need in shape.needs[:1]:
                for name in names:
                    if re.fullmatch(f"(?:{shape.path})/(?:{need})", name):
                        return name
        return names[0]

    # -- paths -----------------------------------------------------------------------------------------------------

    def _may_be_empty(self, name: str) -> bool:
        """Inside a directory that is complete, an empty file may be what the tool wrote; alone it says nothing."""
        return any(shape.folder and re.match(f"(?:{shape.path})/", name) for shape in self.shapes) and not any(
            re.fullmatch(f"(?:{shape.path})/(?:{need})", name) for shape in self.shapes for need in shape.needs
        )

    def _is_ignored(self, path: str) -> bool:
        return any(re.fullmatch(pattern, path) for pattern in self.ignored)

    def _matching(self, path: str, *, is_folder: bool) -> tuple[Shape | None, re.Match[str] | None]:
        for shape in self.shapes:
            match = re.fullmatch(shape.path, path) if shape.folder == is_folder else None
            if match:
                return shape, match
        return None, None

    def _belongs(self, name: str) -> bool:
        return any(
            re.match(f"(?:{shape.path})/", name) if shape.folder else re.fullmatch(shape.path, name)
            for shape in self.shapes
        )


def host_code(host: Host) -> str:
    """The fingerprint of code for the processor at hand: built with `-march=native`, it dies by SIGILL elsewhere."""
    return f"{host.machine}-{host.libc}-{identity.processor_features()}"


def _is_below(folder: str, above: str) -> bool:
    return folder == above or folder.startswith(above + "/")


def _title(match: re.Match[str], path: str) -> str:
    return match.groupdict().get("title") or path.rsplit("/", 1)[-1]


def _key(path: str) -> str:
    key = path.replace("/", "--")
    return key if words.is_plain_name(key) else hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
