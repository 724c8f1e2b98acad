"""One entry as one file. The bytes are described in docs/design/store-format.md; this module is that page in code.

    magic 8 · format u32 · flags u32 · manifest length u64 · contents length u64
    manifest (canonical JSON) · contents (one zstd frame of all files, in table order)
    sha256 of everything above · signature length u32 · signature

No tarfile, no pickle. `decode` trusts nothing: every bound is checked before anything is allocated for it, and the
digest before anything is decompressed.
"""

import json
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

from ondol.errors import PackError
from ondol.host import zstd
from ondol.store.entry import (
    MAX_MANIFEST_BYTES,
    MAX_RATIO,
    MAX_RAW_BYTES,
    Address,
    Entry,
    File,
    check_address,
    check_name,
    check_table,
)

MAGIC = b"ONDOLPK\x00"
FORMAT = 1
#: Measured on real Triton entries: level 3 packs at 150 MB/s and 10 to 1; level 9 gains a tenth for four times the
#: time.
_LEVEL = 3
_MAX_WINDOW = 1 << 27
_HEAD = struct.Struct("<8sIIQQ")
_TAIL = struct.Struct("<32sI")
#: Kind 1: an Ed25519 public key and its signature of the pack's `statement`.
_SIGNATURE = struct.Struct("<B32s64s")
_ED25519 = 1
_STATEMENT = b"ondol entry 1"


def key_name(public: bytes) -> str:
    """How a key is called in messages and in revocations."""
    return sha256(public).hexdigest()[:16]


class Manifest(NamedTuple):
    """A pack's table of contents, without the contents."""

    address: Address
    title: str
    seconds: float
    provenance: dict[str, Any]
    #: (name, size, executable, sha256) of each file.
    files: tuple[tuple[str, int, bool, str], ...]
    #: The digest of all that comes before it in the pack, and how long that is.
    digest: bytes
    size: int
    #: The signer's public key; empty in an unsigned pack.
    public: bytes
    signature: bytes

    @property
    def signer(self) -> str:
        """The name of the key that signed it; empty in an unsigned pack."""
        return key_name(self.public) if self.public else ""


def statement(address: Address, digest: bytes, size: int) -> bytes:
    """What a signature says. Every part with its length before it: no two entries can make one statement."""
    parts = (_STATEMENT, *(word.encode() for word in address), digest, size.to_bytes(8, "little"))
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def encode(entry: Entry, sign: Callable[[bytes], bytes] | None = None) -> bytes:
    """The pack of an entry. Raises `PackError` for an entry that no reader would accept.

    `sign`: makes public key and signature of a statement.
    """
    check_address(entry.address)
    total = check_table([check_name(file.name) for file in entry.files], [len(file.data) for file in entry.files])
    manifest = _manifest_bytes(entry)
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise PackError("the manifest is too large", because=f"{len(manifest)} bytes")
    raw = b"".join(bytes(file.data) for file in entry.files)
    contents = zstd.codec().compress(raw, _LEVEL)
    if total > MAX_RATIO * max(len(contents), 1):
        raise PackError("the entry compresses suspiciously well", because=f"{total} bytes to {len(contents)}")
    head = _HEAD.pack(MAGIC, FORMAT, 0, len(manifest), len(contents))
    body = head + manifest + contents
    digest = sha256(body).digest()
    block = bytes([_ED25519]) + sign(statement(entry.address, digest, len(body))) if sign else b""
    return body + _TAIL.pack(digest, len(block)) + block


def _manifest_bytes(entry: Entry) -> bytes:
    table = [
        [file.name, len(file.data), 1 if file.executable else 0, sha256(file.data).hexdigest()] for file in entry.files
    ]
    fields = {
        **entry.address._asdict(),
        "title": entry.title,
        "seconds": round(entry.seconds, 3),
        "provenance": entry.provenance,
        "files": table,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def decode(data: bytes, expected: Address | None = None) -> Entry:
    """The verified entry in these bytes. `expected` is where they were found: a good pack in a wrong place is bad."""
    return entry_of(*open_pack(data, expected))


def entry_of(manifest: Manifest, contents: memoryview) -> Entry:
    raw = _decompress(contents, sum(size for _, size, _, _ in manifest.files))
    files: list[File] = []
    start = 0
    for name, size, executable, _ in manifest.files:
        files.append(File(name, executable, raw[start : start + size]))
        start += size
    return Entry(manifest.address, tuple(files), manifest.title, manifest.seconds, manifest.provenance)


def inspect(data: bytes, expected: Address | None = None) -> Manifest:
    """The verified table of contents, for people and for `verify`."""
    return open_pack(data, expected)[0]


def check_files(data: bytes, expected: Address | None = None) -> Manifest:
    """`decode`, and each file against its own digest too: what `ondol store verify` does."""
    manifest, contents = open_pack(data, expected)
    for file, (_, _, _, digest) in zip(entry_of(manifest, contents).files, manifest.files, strict=True):
        if sha256(file.data).hexdigest() != digest:
            raise PackError(f"file {file.name!r} does not match its digest in the manifest")
    return manifest


def open_pack(data: bytes, expected: Address | None) -> tuple[Manifest, memoryview]:
    """The manifest, and the contents, not unpacked yet. Whether the signature is good, and whose, is not asked here."""
    view = memoryview(data)
    if len(view) < _HEAD.size + _TAIL.size:
        raise PackError("torn pack", because=f"only {len(view)} bytes")
    magic, version, flags, manifest_size, contents_size = _HEAD.unpack(view[: _HEAD.size])
    if magic != MAGIC:
        raise PackError("not a pack", because="wrong magic")
    if version != FORMAT or flags:
        raise PackError(f"pack of format {version}, flags {flags}", because=f"this version reads format {FORMAT}")
    if manifest_size > MAX_MANIFEST_BYTES or contents_size > MAX_RAW_BYTES:
        raise PackError("pack with impossible sizes", because=f"manifest {manifest_size}, contents {contents_size}")
    end = _HEAD.size + manifest_size + contents_size
    if len(view) < end + _TAIL.size:
        raise PackError("torn pack", because=f"{len(view)} of {end + _TAIL.size} bytes")
    digest, signature_size = _TAIL.unpack(view[end : end + _TAIL.size])
    if len(view) != end + _TAIL.size + signature_size:
        raise PackError("pack of the wrong length", because=f"{len(view)} bytes")
    if sha256(view[:end]).digest() != digest:
        raise PackError("corrupt pack", because="its contents do not match its digest")
    signed = _parse_signature(bytes(view[end + _TAIL.size :][: _SIGNATURE.size + 1]))
    manifest = _parse_manifest(bytes(view[_HEAD.size : _HEAD.size + manifest_size]), digest, end, *signed)
    if expected is not None and manifest.address != expected:
        raise PackError("pack in the wrong place", because=f"it says {'/'.join(manifest.address)}")
    return manifest, view[_HEAD.size + manifest_size : end]


def _parse_signature(block: bytes) -> tuple[bytes, bytes]:
    if not block:
        return b"", b""
    # Anything else was neither made by us nor looked at by anybody: bytes in which to hide something.
    if len(block) != _SIGNATURE.size or block[0] != _ED25519:
        raise PackError("pack with an unreadable signature", because=f"its first byte is {block[0]}")
    _, public, signature = _SIGNATURE.unpack(block)
    return public, signature


def _parse_manifest(data: bytes, *seal: Any) -> Manifest:
    try:
        fields = json.loads(data, object_pairs_hook=_each_once)
        address = check_address(Address(fields["scope"], fields["tool"], fields["fingerprint"], fields["key"]))
        rows = [_parse_row(row) for row in fields["files"]]
        title, seconds, provenance = str(fields["title"]), float(fields["seconds"]), dict(fields["provenance"])
        if not 0 <= seconds < 1e6:  # also refuses NaN, which would spoil every sum it enters
            raise ValueError(f"seconds {seconds}")
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise PackError("pack with an unreadable manifest", because=f"{type(error).__name__}: {error}")
    check_table([row[0] for row in rows], [row[1] for row in rows])
    return Manifest(address, title, seconds, provenance, tuple(rows), *seal)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that is there twice one reader takes the first and another the last: they must not see two entries."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is there twice")
    return fields


def _parse_row(row: Any) -> tuple[str, int, bool, str]:
    name, size, executable, digest = row
    # Bounded here and not only in sum: a number of thousands of digits cannot even be put into an error message.
    if type(size) is not int or not 0 <= size <= MAX_RAW_BYTES:
        raise ValueError(f"bad size for {name!r:.80}")
    if executable not in (0, 1) or not isinstance(digest, str):
        raise ValueError(f"bad row for {name!r:.80}")
    return check_name(name), size, bool(executable), digest


def _decompress(contents: memoryview, total: int) -> memoryview:
    if total > MAX_RATIO * max(len(contents), 1):
        raise PackError("pack claims to unpack to far more than it holds", because=f"{len(contents)} to {total} bytes")
    try:
        frame = zstd.read_frame(contents)
        # The frame's own claim decides what gets allocated, so it must be the one that was checked.
        if frame.content_size != total or frame.window_size > _MAX_WINDOW:
            raise PackError("pack whose contents disagree with its manifest", because=f"{frame.content_size} bytes")
        if zstd.end_of(frame, contents) != len(contents):
            raise PackError("pack with something after its contents", because=f"{len(contents)} bytes")
        raw = zstd.codec().decompress(contents, total)
    except zstd.ZstdError as error:
        raise PackError("pack whose contents do not unpack", because=str(error))
    if len(raw) != total:
        raise PackError("pack whose contents disagree with its manifest", because=f"{len(raw)} bytes")
    return memoryview(raw)
