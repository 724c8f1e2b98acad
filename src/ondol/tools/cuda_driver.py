"""The NVIDIA driver's cache of PTX that it compiled: `<x>/<y>/<14 hexadecimal digits>`, and an `index`.

Measured on driver 580: a file holds its own key (driver build, target, PTX) and its code, and opens with both lengths;
one that is missing, cut or garbled is compiled again; files of two caches together all hit, also without an index;
directories are 0700, so that other users compile everything again. Nothing is published about the format, so a file
whose lengths do not add up does not travel.
"""

from __future__ import annotations

import struct

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped
from ondol.tools.table import BY_NAME

#: A version, the length of the key, the length of the code, a checksum.
_HEAD = struct.Struct("<IQQ8s")


class CudaDriver(Shaped):
    row = BY_NAME["cuda-driver"]
    shapes = (Shape(r"[0-9a-f]/[0-9a-f]/[0-9a-f]{14}", driver=True),)
    ignored = (r"index",)

    def check(self, name: str, data: bytes) -> None:
        if len(data) >= _HEAD.size:
            _, key, code, _ = _HEAD.unpack_from(data)
            if _HEAD.size + key + code == len(data):
                return
        raise EntryRefused(f"{name} is not as long as it says", because="torn")


TOOL = CudaDriver()
