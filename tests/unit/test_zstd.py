"""All ways to zstd read each other's frames, and none can be made to unpack more than was said."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ondol.host import zstd
from ondol.host.zstd import Codec


def _library() -> Codec:
    name = ctypes.util.find_library("zstd")
    if name is None:
        pytest.skip("this machine has no libzstd")
    return zstd.library_codec(name)


def _standard() -> Codec:
    """Python 3.14's interface, as its documentation has it, over the package: what our use of it relies on."""

    class Decompressor:
        def __init__(self) -> None:
            self._reader = zstandard.ZstdDecompressor().decompressobj()
            self.eof = False

        def decompress(self, data: bytes, max_length: int) -> bytes:
            raw = self._reader.decompress(data)
            self.eof = self._reader.eof and len(raw) <= max_length
            return raw[:max_length]

    def compress(data: bytes, level: int) -> bytes:
        return zstandard.ZstdCompressor(level=level, write_checksum=False).compress(data)

    fake = SimpleNamespace(compress=compress, ZstdDecompressor=Decompressor, ZstdError=zstandard.ZstdError)
    return zstd.standard_codec(fake)


WAYS: dict[str, Callable[[], Codec]] = {"package": zstd._package, "library": _library, "standard": _standard}
DATA = b"kernel " * 10_000 + bytes(range(256))


@pytest.mark.parametrize("reader", WAYS)
@pytest.mark.parametrize("writer", WAYS)
@pytest.mark.parametrize("data", [b"", b"x", DATA, bytes(300_000)], ids=["empty", "one", "text", "zeros"])
def test_frame_of_another_way_does_not_unpack(writer: str, reader: str, data: bytes) -> None:
    frame = WAYS[writer]().compress(data, 3)
    assert zstd.read_frame(frame).content_size == len(data)
    assert WAYS[reader]().decompress(memoryview(frame), len(data)) == data


@pytest.mark.parametrize("way", WAYS)
def test_torn_or_lying_frame_unpacks(way: str) -> None:
    codec = WAYS[way]()
    frame = codec.compress(DATA, 3)
    for bad in (frame[:-3], frame[:20], b"no zstd here" * 3):
        with pytest.raises(zstd.ZstdError):
            codec.decompress(bad, len(DATA))


@pytest.mark.parametrize("way", ["library", "standard"])
def test_frame_that_says_too_little_takes_more(way: str) -> None:
    """The claim was checked before; a frame that holds more than its claim must not get more."""
    codec = WAYS[way]()
    with pytest.raises(zstd.ZstdError):
        codec.decompress(codec.compress(DATA, 3), 10)


@given(data=st.binary(max_size=5000), level=st.integers(1, 5), says_size=st.booleans(), checksum=st.booleans())
def test_head_of_a_frame_is_read_as_the_library_reads_it(
    data: bytes, level: int, says_size: bool, checksum: bool
) -> None:
    writer = zstandard.ZstdCompressor(level=level, write_content_size=says_size, write_checksum=checksum)
    frame = writer.compress(data)
    expected = zstandard.get_frame_parameters(frame)
    read = zstd.read_frame(frame)
    known = None if expected.content_size == zstandard.CONTENTSIZE_UNKNOWN else expected.content_size
    assert (read.content_size, read.window_size) == (known, expected.window_size)


@given(st.binary(max_size=40))
def test_any_bytes_as_a_head_raise_anything_else(data: bytes) -> None:
    for head in (data, b"\x28\xb5\x2f\xfd" + data):
        try:
            zstd.read_frame(head)
        except zstd.ZstdError:
            continue


def test_machine_without_any_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ondol.errors import StoreError

    def none() -> Codec:
        raise ImportError

    for name in ("_package", "_standard_library", "_system_library", "_bundled_library"):
        monkeypatch.setattr(zstd, name, none)
    zstd.codec.cache_clear()
    try:
        with pytest.raises(StoreError, match="pip install zstandard"):
            zstd.codec()
    finally:
        zstd.codec.cache_clear()
