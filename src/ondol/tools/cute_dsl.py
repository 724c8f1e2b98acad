"""CuTe DSL of CUTLASS 4.8: one file per function, `cute_dsl_<hash>.mlir`, compiled bytecode that ends in its CRC-32.

Facts: written in `tmp.pid_<pid>_<uuid>/` and renamed; a bad file is a warning and compiled again. The hash covers the
DSL's sources and libraries, the module, options and target. `*.facts` are notes about source text, made in no time.
"""

from __future__ import annotations

import sys
import zlib

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped
from ondol.tools.table import BY_NAME


class CuteDsl(Shaped):
    row = BY_NAME["cute-dsl"]
    shapes = (Shape(r"cute_dsl_[0-9a-f]+\.mlir", library=True),)
    ignored = (r"tmp\.pid_.*", r"[0-9a-f]{32}\.v\d+\.facts(?:\..*)?")

    def check(self, name: str, data: bytes) -> None:
        if len(data) <= 4 or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], sys.byteorder):
            raise EntryRefused(f"{name} does not match its own checksum", because="torn")


TOOL = CuteDsl()
