"""zstd, from wherever this Python can have it: `ondol.pyz` is one file, and brings no package with it.

In this order: the `zstandard` package; Python 3.14's own; the system's library, which nearly every Linux has because
its package manager needs it; the copy of that library inside `ondol.pyz`. All read and write the same frames.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pkgutil import get_data
from typing import Any, NamedTuple

from ondol.errors import StoreError
from ondol.host import files

_MAGIC = b"\x28\xb5\x2f\xfd"
_LIBRARY = "libzstd.so.1"
#: The kind of block that holds one byte, to be repeated.
_REPEATED = 1
#: Compressors make blocks of 128 KiB, or split them into some KiB; the largest pack has room for as many.
_MAX_BLOCKS = 1 << 20


class ZstdError(Exception):
    """Bytes that are no good frame."""


class Codec(NamedTuple):
    #: (data, level) → one frame that says how long its contents are, without a checksum: packs have a better one.
    compress: Callable[[bytes, int], bytes]
    #: (one frame, the length of its contents) → its contents; `ZstdError` for anything else.
    decompress: Callable[[bytes | memoryview, int], bytes]


class Frame(NamedTuple):
    """What a frame says of itself before anything is unpacked."""

    #: None if it does not say.
    content_size: int | None
    window_size: int
    #: Where its first block begins, and whether a checksum follows the last one.
    blocks_at: int
    checksum: bool


@lru_cache(maxsize=1)
def codec() -> Codec:
    """Raises `StoreError` where there is none."""
    for offer in (_package, _standard_library, _system_library, _bundled_library):
        with suppress(ImportError, OSError, AttributeError):
            return offer()
    raise StoreError(
        "there is no zstd on this machine, and packs are made with it",
        because=f"neither the package zstandard, nor compression.zstd, nor {_LIBRARY}",
        hint="pip install zstandard, or install the system's libzstd",
    )


def read_frame(data: bytes | memoryview) -> Frame:
    """The head of a frame (RFC 8878, 3.1.1.1). Raises `ZstdError` if it is none."""
    head = bytes(data[:18])
    if len(head) < 6 or head[:4] != _MAGIC or head[4] & 0b1000:
        raise ZstdError("not a zstd frame")
    single, dictionary, size_flag = head[4] & 0b100000, (0, 1, 2, 4)[head[4] & 3], head[4] >> 6
    size_bytes = (1 if single else 0, 2, 4, 8)[size_flag]
    position = 5 if single else 6
    end = position + dictionary + size_bytes
    if len(head) < end:
        raise ZstdError("a frame that is cut off")
    size = int.from_bytes(head[end - size_bytes : end], "little") + (256 if size_flag == 1 else 0)
    known = size if size_bytes else None
    base = 1 << 10 + (head[5] >> 3)
    window = size if single else base + (base >> 3) * (head[5] & 7)
    return Frame(known, window, end, bool(head[4] & 0b100))


def end_of(frame: Frame, data: bytes | memoryview) -> int:
    """Where a frame ends (RFC 8878, 3.1.1.2): what the codecs overlook, or take for more of it, begins there.

    Raises `ZstdError` if it is cut off, or in so many pieces that nobody's compressor made it.
    """
    at = frame.blocks_at
    for _ in range(_MAX_BLOCKS):
        block = int.from_bytes(data[at : at + 3], "little")
        last = block & 1
        at += 3 + (1 if block >> 1 & 3 == _REPEATED else block >> 3) + (4 if last and frame.checksum else 0)
        if at > len(data):
            break
        if last:
            return at
    raise ZstdError("a frame that is cut off")


def _package() -> Codec:
    import zstandard

    def decompress(data: bytes | memoryview, size: int) -> bytes:
        try:
            return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=size))
        except zstandard.ZstdError as error:
            raise ZstdError(str(error))

    def compress(data: bytes, level: int) -> bytes:
        return bytes(zstandard.ZstdCompressor(level=level, write_checksum=False).compress(data))

    return Codec(compress, decompress)


def _standard_library() -> Codec:
    return standard_codec(import_module("compression.zstd"))


def standard_codec(module: Any) -> Codec:
    """From Python 3.14's `compression.zstd`, or its backport."""

    def decompress(data: bytes | memoryview, size: int) -> bytes:
        # One frame and no more: `module.decompress` would go on to whatever follows it, of whatever size.
        unpacking = module.ZstdDecompressor()
        try:
            raw = unpacking.decompress(bytes(data), max_length=size + 1)
        except module.ZstdError as error:
            raise ZstdError(str(error))
        if not unpacking.eof or len(raw) > size:
            raise ZstdError("a frame that is cut off or too long")
        return bytes(raw)

    return Codec(lambda data, level: bytes(module.compress(data, level=level)), decompress)


def _system_library() -> Codec:
    return library_codec(_LIBRARY)


def _bundled_library() -> Codec:
    data = get_data("ondol", f"native/libzstd-{os.uname().machine}.so")
    if data is None:
        raise ImportError("nothing bundled")
    # In memory: needs no place on disk that must be private, executable and cleaned up.
    fd = os.memfd_create("libzstd", os.MFD_CLOEXEC)
    try:
        files.write_all(fd, data)
        return library_codec(f"/proc/self/fd/{fd}")
    except OSError:
        return _from_disk(data)  # no /proc, or the kernel forbids to execute what is only in memory
    finally:
        os.close(fd)


def _from_disk(data: bytes) -> Codec:
    import tempfile

    # A new directory of mode 0700: nobody can put another library in the place of ours.
    with tempfile.TemporaryDirectory(prefix="ondol-libzstd-") as folder:
        path = os.path.join(folder, _LIBRARY)
        files.write_new(path, data, 0o700, sync=False)
        return library_codec(path)


def library_codec(path: str) -> Codec:
    """From a libzstd, by its plain C interface, which has not changed since 1.0."""
    library = ctypes.CDLL(path)
    size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
    interface: list[tuple[Any, list[Any]]] = [
        (library.ZSTD_compressBound, [size_t]),
        (library.ZSTD_compress, [pointer, size_t, ctypes.c_char_p, size_t, ctypes.c_int]),
        (library.ZSTD_decompress, [pointer, size_t, ctypes.c_char_p, size_t]),
    ]
    for function, arguments in interface:
        function.restype = size_t
        function.argtypes = arguments
    library.ZSTD_isError.argtypes = [size_t]

    def taken(result: int, room: Any) -> bytes:
        if library.ZSTD_isError(result):
            raise ZstdError("the frame does not unpack")
        return bytes(memoryview(room)[:result])

    def compress(data: bytes, level: int) -> bytes:
        room = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
        return taken(library.ZSTD_compress(room, len(room), data, len(data), level), room)

    def decompress(data: bytes | memoryview, size: int) -> bytes:
        room = ctypes.create_string_buffer(max(size, 1))
        frame = bytes(data)
        return taken(library.ZSTD_decompress(room, size, frame, len(frame)), room)

    return Codec(compress, decompress)
