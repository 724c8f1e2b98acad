"""JAX 0.10: one file per compiled program, `<module>-<sha256>-cache`; a time of last use beside it under a size limit.

Facts: files are written in place, so a killed job leaves a torn one, which JAX reads with a warning and compiles again;
a compressed executable names neither its directory nor its user. The key covers JAX, XLA, the program and the device
kind, not the processor's features: XLA's CPU code for another machine is refused or dies there.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.host import zstd
from ondol.tools.api import MAX_FILE_BYTES
from ondol.tools.shapes import Shape, Shaped
from ondol.tools.table import BY_NAME

_ZSTD = b"\x28\xb5\x2f\xfd"


class Jax(Shaped):
    row = BY_NAME["jax"]
    shapes = (Shape(r"(?P<title>[^/]+)-[0-9a-f]{64}-cache", host_code=True),)
    ignored = (r".*-atime", r"\.lockfile", r"xla_gpu_.*")

    def check(self, name: str, data: bytes) -> None:
        # zlib where Python has no zstandard; both end in a check of their own, which is read by unpacking.
        if not (_whole_zstd(data) if data.startswith(_ZSTD) else _whole_zlib(data)):
            raise EntryRefused(f"{name} is cut off", because="torn")


TOOL = Jax()


def _whole_zstd(data: bytes) -> bool:
    try:
        size = zstd.read_frame(data).content_size
        return size is not None and size <= MAX_FILE_BYTES and len(zstd.codec().decompress(data, size)) == size
    except zstd.ZstdError:
        return False


def _whole_zlib(data: bytes) -> bool:
    import zlib

    reader = zlib.decompressobj()
    try:
        reader.decompress(data)
    except zlib.error:
        return False
    return reader.eof
