"""Most caches are made of a few shapes: files of one kind of name, directories that are complete with one file in them.
A tool that is no more than that states its shapes and inherits the rest of the contract of `ondol.tools.api`; one that
changes its files in place is made of `Snapshots`.
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ondol.errors import EntryRefused
from ondol.foreign_text import is_plain_name
from ondol.host import accelerator, identity
from ondol.host.identity import Host
from ondol.tools.api import ANYWHERE, MAX_METADATA_BYTES, CacheDir, Found, Refused, Tool, refused, tuned_here
from ondol.tools.table import Row

Listing = dict[str, os.stat_result]


class Shape(NamedTuple):
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
    #: Code for any processor of the kind: it needs the architecture and the C library only.
    library: bool = False
    #: A choice that was measured here: it holds for this driver and these devices.
    tuned: bool = False
    #: Made by the GPU's driver, for itself.
    driver: bool = False
    #: For a file: others beside it without which it is useless, by name, with the expression's groups as `{group}`.
    partners: tuple[str, ...] = ()


class Shaped(Tool):
    """A tool that consists of shapes. Subclasses state `row`, `shapes` and `ignored`, and may sharpen the rest."""

    row: Row
    shapes: tuple[Shape, ...] = ()
    #: Paths that are neither entries nor worth a word: temporary files, locks, statistics.
    ignored: tuple[str, ...] = ()
    #: How a file's name ends → whether such a file, by its own contents, is whole.
    wholes: Mapping[str, Callable[[bytes], bool]] = {}

    # -- what subclasses may sharpen -------------------------------------------------------------------------------

    def check(self, name: str, data: bytes) -> None:
        """Raises `EntryRefused` for a file that its own contents show to be torn. An empty one always is."""
        for end, is_whole in self.wholes.items():
            if name.endswith(end) and not is_whole(data):
                raise EntryRefused(f"{name} is cut off or damaged", because="torn")

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found | None:
        """A unit, looked at once more before it counts. May raise `EntryRefused`; None: not worth a word.

        `place`: its path. `listing`: what lies beside a single file, or at every depth below a directory.
        """
        del cache, place, listing
        return found

    def fingerprint(self, shape: Shape, host: Host) -> str:
        """What the tool's own key does not cover; empty where that cannot be told, and then nothing travels."""
        if shape.tuned:
            return f"{tuned_here()}-{library(host)}" if tuned_here() else ""
        if shape.driver:
            return accelerator.here().driver
        if shape.library:
            return library(host)
        return host_code(host) if shape.host_code else ANYWHERE

    def accepts(self, fingerprint: str, host: Host) -> bool:
        return bool(fingerprint) and any(fingerprint == self.fingerprint(shape, host) for shape in self.shapes)

    # -- the contract ----------------------------------------------------------------------------------------------

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        claimed = ""
        for folder, listing in cache.tree():
            if claimed and folder.startswith(claimed):
                continue
            shape, match = self._matching(folder, is_folder=True)
            if shape and match:
                claimed = f"{folder}/"
                yield from self._unit(cache, host, folder, {}, shape, match)
            elif self._is_ignored(folder):
                claimed = f"{folder}/"
            elif isinstance(listing, OSError):
                yield refused(folder or ".", listing)
            else:
                yield from self._single_files(cache, host, folder, listing)

    def _single_files(self, cache: CacheDir, host: Host, folder: str, listing: Listing) -> Iterator[Found | Refused]:
        taken: set[str] = set()
        rest: list[str] = []
        for path in [_join(folder, name) for name in listing]:
            if self._is_ignored(path):
                continue
            shape, match = self._matching(path, is_folder=False)
            if shape and match:
                for unit in self._unit(cache, host, path, listing, shape, match):
                    taken |= set(unit.names) if isinstance(unit, Found) else {path}
                    yield unit
            else:
                rest.append(path)
        for path in rest:
            if path not in taken:
                yield Refused("unknown", path, f"not a file that {self.row.name} is known to keep")

    def _unit(
        self, cache: CacheDir, host: Host, place: str, listing: Listing, shape: Shape, match: re.Match[str]
    ) -> Iterator[Found | Refused]:
        """What is at this place, if it is whole; `listing`: what lies beside a single file."""
        try:
            if shape.folder:
                listing = self._below(cache, place, shape)
                names = tuple(sorted(f"{place}/{name}" for name in listing))
            else:
                names = (place, *_partners(place, shape, match))
                _check_there(names, listing)
            fingerprint = self.fingerprint(shape, host)
            if not fingerprint:
                raise EntryRefused("holds for one GPU driver and model, and those here are unknown", because="unplaced")
            title = match.groupdict().get("title") or place.rsplit("/", 1)[-1]
            found = self.finish(cache, place, listing, Found(key_of(place), fingerprint, "", names, title, 0.0))
        except (EntryRefused, OSError) as error:
            yield refused(place, error)
        else:
            yield from [found] if found else []

    def _below(self, cache: CacheDir, folder: str, shape: Shape) -> Listing:
        """Everything in a directory that is a unit, at every depth. Raises `EntryRefused` if it is not complete."""
        below: Listing = {}
        for place, listing in cache.tree(folder):
            if isinstance(listing, OSError):
                raise listing
            there = {f"{place}/{name}": status for name, status in listing.items()}
            below |= {path[len(folder) + 1 :]: there[path] for path in there if not self._is_ignored(path)}
        missing = [need for need in shape.needs if not any(re.fullmatch(need, name) for name in below)]
        if missing or not below:
            raise EntryRefused(f"no {missing[0]}" if below else "empty", because="incomplete")
        return below

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        del found, cache
        if not data and not self._may_be_empty(name):
            raise EntryRefused(f"{name} is empty", because="torn")
        self.check(name, data)
        return data

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        del folder
        if not any(self._belongs(name, other) for other in names):
            raise EntryRefused(f"{name!r:.80} is not a file that {self.row.name} keeps", because="outside")
        return data

    def witness(self, names: tuple[str, ...]) -> str:
        for shape in self.shapes:
            for need in shape.needs[:1]:
                for name in names:
                    if re.fullmatch(f"(?:{shape.path})/(?:{need})", name):
                        return name
        return next((name for name in names if self._matching(name, is_folder=False)[0]), names[0])

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

    def _belongs(self, name: str, other: str) -> bool:
        """Whether a file is part of a unit: inside a directory that is one, or beside `other` as its shape allows."""
        if any(shape.folder and re.match(f"(?:{shape.path})/", name) for shape in self.shapes):
            return True
        shape, match = self._matching(other, is_folder=False)
        return bool(shape and match and name in (other, *_partners(other, shape, match)))


def host_code(host: Host) -> str:
    """The fingerprint of code for the processor at hand: built with `-march=native`, it dies by SIGILL elsewhere."""
    return f"{library(host)}-{identity.processor_features()}"


def library(host: Host) -> str:
    """The fingerprint of code that any processor of the kind can run."""
    return f"{host.machine}-{host.libc}"


def whole_elf(data: bytes) -> bool:
    """Whether a 64-bit ELF file reaches as far as its own header says; a file cut off by a crash does not."""
    if len(data) < 64 or data[:4] != b"\x7fELF" or data[4] != 2:
        return False
    program_start, section_start = struct.unpack_from("<QQ", data, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", data, 54)
    end = max(program_start + program_size * program_count, section_start + section_size * section_count)
    return bool(end <= len(data))


def parsed(name: str, data: bytes) -> Any:
    """The value in a JSON file. Raises `EntryRefused` if there is none."""
    if len(data) > MAX_METADATA_BYTES:
        raise EntryRefused(f"{name} has more than {MAX_METADATA_BYTES} bytes", because="unfit")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise EntryRefused(f"{name} is not JSON", because="torn")


def whole_json(data: bytes, kind: type = object) -> bool:
    """Whether it is JSON for a value of this kind."""
    try:
        return isinstance(parsed("it", data), kind)
    except EntryRefused:
        return False


def key_of(path: str) -> str:
    """A unit's key in the store, from its path."""
    key = path.replace("/", "--")
    return key if is_plain_name(key) else hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()


def version_key(path: str, digest: str) -> str:
    """The key of one version of what lies there; see `Tool.versioned`."""
    key = key_of(path)
    # A key has at most 200 letters, and two places must never become one.
    return f"{key if len(key) <= 150 else hashlib.sha256(key.encode()).hexdigest()}@{digest}"


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _partners(path: str, shape: Shape, match: re.Match[str]) -> list[str]:
    folder = path.rpartition("/")[0]
    return [_join(folder, partner.format(**match.groupdict())) for partner in shape.partners]


def _check_there(paths: tuple[str, ...], listing: Listing) -> None:
    """Raises `EntryRefused` unless all of these lie in the directory of this listing, with something in them."""
    for name in [path.rpartition("/")[2] for path in paths]:
        if name not in listing:
            raise EntryRefused(f"no {name}", because="incomplete")
        if not listing[name].st_size:
            raise EntryRefused("empty", because="torn")


class Snapshots(Shaped):
    """Files that a tool changes in place: an index, a database. Two of them cannot be merged, and first come, first
    served would freeze the poorest one for ever.

    So an entry's key is the file's place and a digest of what it holds, every state of it is an entry of its own, and a
    room gets the newest that is good: what one job added, the next one has. Subclasses state shapes of single files,
    and may say what in a file counts.
    """

    versioned = True

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        """What tells one state from another, without what changes by mere use. Raises `EntryRefused` if it is torn."""
        del cache, path
        return data

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        del listing
        data = cache.read("", place)
        self.check(place, data)
        essence = hashlib.sha256(self.essence(cache, place, data)).hexdigest()
        return found._replace(key=version_key(place, essence[:32]))
