"""Triton 3.4 to 3.9: one directory per key; group files that name their children by absolute path.

    <cache>/<KEY>/__grp__NAME.json    {"child_paths": {"NAME.cubin": "<absolute path>", …}}: written last
                  NAME.{source,ttir,ttgir,llir,ptx,cubin,json}     (AMD: amdgcn, hsaco)
    <cache>/<KEY>/cuda_utils.cpython-311-x86_64-linux-gnu.so        a helper, alone in its directory
    <cache>/<KEY>/NAME.autotune.json                                what autotuning measured, alone in its directory

Facts that this file defends against, each seen on 3.6 or 3.9: a moved cache misses silently and a copied one silently
reads the original, because of the absolute paths; a zero-byte cubin is a hit; an empty metadata file is a crash, an
empty or torn autotuning result too; a truncated helper is a SIGBUS; two writers are atomic per file, not per entry.
The key of an autotuning result knows the compile target, not the model: an H100's serves an H200.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ondol.errors import EntryRefused
from ondol.host.identity import Host
from ondol.tools.api import ANYWHERE, TUNED, CacheDir, Found, Refused, Tool, refused, tuned_here
from ondol.tools.shapes import library, parsed, whole_elf
from ondol.tools.table import BY_NAME

_GROUP = "__grp__"
_TUNING = ".autotune.json"
#: base32 of a SHA-256, without padding.
_KEY = re.compile("[A-Z2-7]{52}")
#: The binaries that are ELF files, whose own header tells whether they are whole.
_ELF = (".so", ".cubin", ".hsaco")
#: A compile that seems to have taken longer is a file copied with foreign times.
_LONGEST_COMPILE = 3600.0


class Triton(Tool):
    row = BY_NAME["triton"]

    # -- from a cache directory to entries -------------------------------------------------------------------------

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        for key in cache.folders():
            if not _KEY.fullmatch(key):
                if not key.startswith("tmp."):
                    yield Refused("unknown", key, "not a Triton key directory")
                continue
            try:
                there = cache.listing(key)
            except OSError as error:
                yield refused(key, error)
                continue
            travels = [name for name in there if not name.startswith("tmp.") and name != "lock"]
            yield from self._scan_key(cache, host, key, {name: there[name] for name in travels})

    def _scan_key(
        self, cache: CacheDir, host: Host, key: str, listing: dict[str, os.stat_result]
    ) -> Iterator[Found | Refused]:
        groups = [name for name in listing if name.startswith(_GROUP) and name.endswith(".json")]
        claimed: set[str] = set()
        if groups:
            result = self._scan_groups(cache, host, key, listing, groups)
            yield result
            claimed = set(result.names) if isinstance(result, Found) else set(listing)
        for name, status in listing.items():
            if name.endswith((".so", _TUNING)) and name not in claimed:
                claimed.add(name)
                if status.st_size:
                    yield _single(host, key, name)
                else:
                    yield Refused("torn", f"{key}/{name}", "empty")
        if not claimed:
            # An empty directory is a compile that failed, or one that is cut off before its first file.
            yield Refused("incomplete", key, "no group file" if listing else "empty")

    def _scan_groups(
        self, cache: CacheDir, host: Host, key: str, listing: dict[str, os.stat_result], groups: list[str]
    ) -> Found | Refused:
        names: set[str] = set(groups)
        for group in groups:
            try:
                children = _children(cache.read_metadata(key, group))
                for child, path in children.items():
                    _check_child(cache, key, child, path, listing)
                names |= set(children)
            except (EntryRefused, OSError) as error:
                return refused(f"{key}/{group}", error)
        times = [listing[name].st_mtime for name in names]
        finished = max(listing[group].st_mtime for group in groups)
        if cache.ours and max(times) > finished:
            return Refused(
                "mixed", key, "files were replaced after the entry was finished: a second writer was cut off"
            )
        seconds = finished - min(times)
        return Found(
            key,
            next((_host_fingerprint(host, name) for name in sorted(names) if name.endswith(".so")), ANYWHERE),
            key,
            tuple(sorted(names)),
            groups[0].removeprefix(_GROUP).removesuffix(".json"),
            seconds if seconds < _LONGEST_COMPILE else 0.0,
            sealed=True,  # the group is written last, and every file of it by a rename
        )

    # -- path-free and back ----------------------------------------------------------------------------------------

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        if not data:
            raise EntryRefused(f"{name} is empty", because="torn")
        if name.endswith(_ELF) and not whole_elf(data):
            raise EntryRefused(f"{name} is cut off", because="torn")
        if name.startswith(_GROUP):
            for child, path in _children(data).items():
                _check_place(cache, found.key, child, path)
            return _group({child: child for child in sorted(_children(data))})
        if name.endswith(_TUNING):
            _check_tuning(name, data)
        elif name.endswith(".json") and not isinstance(parsed(name, data), dict):
            raise EntryRefused(f"{name} is not a Triton metadata file", because="torn")
        return data

    def made_by(self, contents: Mapping[str, bytes]) -> str:
        for name, data in contents.items():
            if name.endswith(".json") and not name.startswith(_GROUP):
                return str(parsed(name, data).get("triton_version", ""))
        return ""

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        if not name.startswith(_GROUP):
            return data
        children = _children(bytes(data))
        strangers = set(children) - set(names)
        if strangers:
            raise EntryRefused(
                f"{name} names {sorted(strangers)[0]!r:.80}, which is not in the entry", because="outside"
            )
        return _group({child: os.path.join(folder, child) for child in children})

    def folder(self, key: str) -> str:
        return key

    def witness(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if name.startswith(_GROUP)), names[0])

    def accepts(self, fingerprint: str, host: Host) -> bool:
        if fingerprint.startswith(TUNED):
            return fingerprint == tuned_here()
        return fingerprint == ANYWHERE or fingerprint.startswith(f"{library(host)}-")


TOOLS = (Triton(),)


def _host_fingerprint(host: Host, name: str) -> str:
    """Host code depends on processor, C library and Python's ABI; the last is in the file's own name since 3.4."""
    middle = name.split(".")[1:-1]
    return f"{library(host)}-{middle[-1] if middle else 'noabi'}"


def _single(host: Host, key: str, name: str) -> Found | Refused:
    """A helper library or an autotuning result."""
    if not name.endswith(_TUNING):
        return Found(key, _host_fingerprint(host, name), key, (name,), name.split(".")[0], 0.0, sealed=True)
    if not tuned_here():
        return Refused("unplaced", f"{key}/{name}", "measured on a GPU whose driver or model cannot be found out here")
    return Found(key, tuned_here(), key, (name,), f"autotuning of {name.removesuffix(_TUNING)}", 0.0, sealed=True)


def _check_tuning(name: str, data: bytes) -> None:
    """Triton takes the fastest of what is in the file without a look at it: anything else ends the user's program."""
    fields = parsed(name, data)
    timings = fields.get("configs_timings") if isinstance(fields, dict) else None
    if not isinstance(timings, list) or not timings or not all(map(_is_timing, timings)):
        raise EntryRefused(f"{name} holds no timings", because="torn")


def _is_timing(timing: Any) -> bool:
    return isinstance(timing, list) and len(timing) == 2 and isinstance(timing[0], dict) and bool(timing[1])


def _group(children: dict[str, str]) -> bytes:
    return json.dumps({"child_paths": children}).encode()


def _children(data: bytes) -> dict[str, str]:
    fields = parsed("the group file", data)
    children = fields.get("child_paths") if isinstance(fields, dict) else None
    if not isinstance(children, dict) or not children or not all(isinstance(p, str) for p in children.values()):
        raise EntryRefused("the group file names no children", because="torn")
    return children


def _check_child(cache: CacheDir, key: str, child: str, path: str, listing: dict[str, os.stat_result]) -> None:
    _check_place(cache, key, child, path)
    if child not in listing:
        raise EntryRefused(f"{child} is missing", because="incomplete")
    if listing[child].st_size == 0:
        raise EntryRefused(f"{child} is empty", because="torn")


def _check_place(cache: CacheDir, key: str, child: str, path: str) -> None:
    """A child must be the file of that name in this very directory.

    In a room the whole path must be ours. An adopted cache may have been written under another mount point, so there
    the last two components decide; either way only the file beside the group is ever read.
    """
    folder, name = os.path.split(path)
    inside = name == child and child not in (".", "..", "")
    if not cache.ours:
        inside = inside and os.path.basename(folder) == key
    elif path != (expected := os.path.join(cache.seen_as, key, child)):
        # Across a wall the path is one of another tree: looking for it in ours would only tell where a stranger points.
        across = cache.seen_as != cache.path
        inside = inside and not across and os.path.realpath(path) == os.path.realpath(expected)
    if not inside:
        raise EntryRefused(f"{child!r:.80} is at {path!r:.200}, outside its entry", because="outside")
