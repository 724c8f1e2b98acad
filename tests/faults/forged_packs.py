"""Packs as an enemy would make them: every checksum right, everything else wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import zstandard

from handmade import make_entry
from ondol.errors import PackError
from ondol.host import zstd
from ondol.store import pack
from ondol.store.entry import MAX_FILES, MAX_MANIFEST_BYTES, MAX_RAW_BYTES, Address

_RAW = b"kernel" * 20
ADDRESS = make_entry(1).address


def forge(manifest: object = None, contents: bytes | None = None, *, raw_manifest: bytes | None = None) -> bytes:
    """A pack with this manifest and these (compressed) contents, and a digest that fits."""
    data = raw_manifest if raw_manifest is not None else json.dumps(manifest).encode()
    packed = zstandard.ZstdCompressor().compress(_RAW) if contents is None else contents
    body = pack._HEAD.pack(pack.MAGIC, pack.FORMAT, 0, len(data), len(packed)) + data + packed
    return body + pack._TAIL.pack(sha256(body).digest(), 0)


def row(name: object = "add.cubin", size: object = len(_RAW), executable: object = 0, digest: object = "") -> list[Any]:
    return [name, size, executable, digest or sha256(_RAW).hexdigest()]


def manifest(**changes: object) -> dict[str, object]:
    """A manifest that would be good without the changes."""
    good = {**ADDRESS._asdict(), "title": "add", "seconds": 1.0, "provenance": {}, "files": [row()]}
    return {**good, **changes}


def with_names(*names: object) -> bytes:
    """Files of these names that share the contents between them."""
    sizes = [len(_RAW) if number == 0 else 0 for number, _ in enumerate(names)]
    return forge(manifest(files=[row(name, size) for name, size in zip(names, sizes, strict=True)]))


def _unsized(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(raw)


def _bomb() -> bytes:
    size = 600 << 20
    return forge(manifest(files=[row(size=size)]), zstandard.ZstdCompressor().compress(bytes(1 << 20)))


def _lying_frame() -> bytes:
    """A frame whose header claims a gigabyte, in a pack whose manifest claims what was checked."""
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(70000)))
    at = bytes(frame).index((70000).to_bytes(4, "little"))
    frame[at : at + 4] = (1 << 30).to_bytes(4, "little")
    return forge(manifest(files=[row(size=70000)]), bytes(frame))


def _head(**changes: int) -> bytes:
    fields = {"version": pack.FORMAT, "flags": 0, "manifest": 10, "contents": 10, **changes}
    head = pack._HEAD.pack(pack.MAGIC, fields["version"], fields["flags"], fields["manifest"], fields["contents"])
    return head + bytes(200)


NAMES: dict[str, object] = {
    "parent": "../evil",
    "parent_inside": "a/../../evil",
    "parent_at_the_end": "a/..",
    "here": "./a",
    "absolute": "/etc/passwd",
    "nothing": "",
    "empty_part": "a//b",
    "trailing_slash": "a/",
    "nul": "a\0b",
    "newline": "a\nb",
    "escape": "\x1b[2J",
    "delete": "a\x7f",
    "surrogate": "\ud800",
    "too_long": "a" * 600,
    "part_too_long": "a" * 300,
    "part_too_long_in_bytes": "b/" + "é" * 128,
    "too_deep": "/".join("abcdefghijk"),
    "number": 7,
    "none": None,
    "list": ["a"],
}
PACKS: dict[str, Callable[[], bytes]] = {
    "same_name_twice": lambda: with_names("a", "a"),
    "file_and_folder": lambda: with_names("a", "a/b"),
    "folder_and_file": lambda: with_names("a/b/c", "a/b"),
    "too_many_files": lambda: with_names(*(f"f{number}" for number in range(MAX_FILES + 1))),
    "no_files": lambda: forge(manifest(files=[])),
    "files_is_a_dict": lambda: forge(manifest(files={"a": 1})),
    "files_is_a_number": lambda: forge(manifest(files=3)),
    "row_too_short": lambda: forge(manifest(files=[["a", 1]])),
    "row_is_text": lambda: forge(manifest(files=["abcd"])),
    "negative_size": lambda: forge(manifest(files=[row(size=-1), row("b", len(_RAW) + 1)])),
    "size_is_true": lambda: forge(manifest(files=[row(size=True)])),
    "size_is_a_float": lambda: forge(manifest(files=[row(size=float(len(_RAW)))])),
    "size_beyond_all_bounds": lambda: forge(manifest(files=[row(size=MAX_RAW_BYTES + 1)])),
    "sizes_too_long_to_print": lambda: forge(manifest(files=[row("a", 10**4299 * 9), row("b", 10**4299 * 9)])),
    "size_too_long_to_parse": lambda: forge(raw_manifest=json.dumps(manifest()).encode().replace(b"120", b"9" * 5000)),
    "size_too_small": lambda: forge(manifest(files=[row(size=len(_RAW) - 1)])),
    "size_too_large": lambda: forge(manifest(files=[row(size=len(_RAW) + 1)])),
    "executable_is_two": lambda: forge(manifest(files=[row(executable=2)])),
    "executable_is_text": lambda: forge(manifest(files=[row(executable="1")])),
    "digest_is_a_number": lambda: forge(manifest(files=[row(digest=5)])),
    "seconds_nan": lambda: forge(manifest(seconds=float("nan"))),
    "seconds_infinite": lambda: forge(manifest(seconds=float("inf"))),
    "seconds_negative": lambda: forge(manifest(seconds=-1)),
    "seconds_enormous": lambda: forge(manifest(seconds=10**400)),
    "seconds_text": lambda: forge(manifest(seconds="soon")),
    "provenance_a_number": lambda: forge(manifest(provenance=7)),
    "other_scope": lambda: forge(manifest(scope="pr-1")),
    "other_tool": lambda: forge(manifest(tool="inductor")),
    "other_fingerprint": lambda: forge(manifest(fingerprint="x86_64")),
    "other_key": lambda: forge(manifest(key="OTHER")),
    "scope_leads_elsewhere": lambda: forge(manifest(scope="../main")),
    "key_is_a_number": lambda: forge(manifest(key=7)),
    "key_is_missing": lambda: forge({name: value for name, value in manifest().items() if name != "key"}),
    "manifest_is_a_list": lambda: forge([1, 2]),
    "manifest_is_null": lambda: forge(None),
    "manifest_is_empty": lambda: forge(raw_manifest=b""),
    "manifest_is_not_text": lambda: forge(raw_manifest=b"\xff\xfe\x00\x01"),
    "manifest_is_deep": lambda: forge(raw_manifest=b"[" * 100_000),
    "manifest_value_is_deep": lambda: forge(raw_manifest=_deep_provenance()),
    "manifest_too_large": lambda: forge(manifest(title="x" * MAX_MANIFEST_BYTES)),
    "ratio_bomb": _bomb,
    "frame_that_lies": _lying_frame,
    "frame_without_size": lambda: forge(manifest(), _unsized(_RAW)),
    "frame_cut_off": lambda: forge(manifest(), zstandard.ZstdCompressor().compress(_RAW)[:-3]),
    "byte_after_the_frame": lambda: forge(manifest(), zstandard.ZstdCompressor().compress(_RAW) + b"x"),
    "second_frame": lambda: forge(manifest(), zstandard.ZstdCompressor().compress(_RAW) * 2),
    "empty_second_frame": lambda: forge(manifest(), zstandard.ZstdCompressor().compress(_RAW) + _empty_frame()),
    "skippable_frame_after": lambda: forge(manifest(), zstandard.ZstdCompressor().compress(_RAW) + _skippable(b"xy")),
    "frame_of_a_million_nothings": lambda: forge(manifest(), _nothings()),
    "key_twice": lambda: forge(raw_manifest=_twice(b'"title"', b'"title": "other", "title"')),
    "key_twice_inside": lambda: forge(raw_manifest=_twice(b'"provenance": {}', b'"provenance": {"a": 1, "a": 2}')),
    "no_frame": lambda: forge(manifest(), b""),
    "contents_not_a_frame": lambda: forge(manifest(), b"no zstd here"),
    "skippable_frame": lambda: forge(manifest(), b"\x50\x2a\x4d\x18" + (120).to_bytes(4, "little") + bytes(120)),
    "head_of_another_format": lambda: _head(version=2),
    "head_with_flags": lambda: _head(flags=1),
    "head_with_huge_manifest": lambda: _head(manifest=2**63),
    "head_with_huge_contents": lambda: _head(contents=2**64 - 1),
    "signature_longer_than_the_pack": lambda: pack.encode(make_entry(1))[:-4] + b"\xff\xff\xff\xff",
}  # fmt: skip


def _empty_frame() -> bytes:
    return zstandard.ZstdCompressor().compress(b"")


def _skippable(data: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data


def _nothings() -> bytes:
    """A frame with two million empty blocks before its contents."""
    frame = zstandard.ZstdCompressor().compress(_RAW)
    at = zstd.read_frame(frame).blocks_at
    return frame[:at] + bytes(3) * (2 << 20) + frame[at:]


def _twice(once: bytes, twice: bytes) -> bytes:
    good = json.dumps(manifest()).encode()
    assert once in good
    return good.replace(once, twice)


def _deep_provenance() -> bytes:
    good = json.dumps(manifest()).encode()
    return good.replace(b'"provenance": {}', b'"provenance": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000)


def accepted(data: bytes, expected: Address = ADDRESS) -> str:
    """Empty if a pack is refused as it should be; else what happened instead."""
    for reader in (pack.decode, pack.inspect, pack.check_files):
        try:
            reader(data, expected)
        except PackError:
            continue
        except BaseException as error:
            return f"{reader.__name__}: {type(error).__name__}: {error}"
        if reader is not pack.inspect:  # which does not look into the contents
            return f"{reader.__name__} accepts it"
    return ""
