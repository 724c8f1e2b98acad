"""CuPy 14: one file per kernel, `<sha1 of the key>.cubin`, which begins with the SHA-1 of the rest in hexadecimal.

Facts: written aside and renamed, but with mkstemp's mode 0600, so that another user's CuPy ends with a PermissionError
instead of compiling (seen on an H200). The key covers compiler, options, architecture and CuPy's own headers.
"""

from __future__ import annotations

import hashlib

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped
from ondol.tools.table import BY_NAME

_DIGEST = 40


class CuPy(Shaped):
    row = BY_NAME["cupy"]
    shapes = (Shape(r"[0-9a-f]{40}\.(?:cubin|ltoir|hsaco)"),)
    #: Sources kept on request, and mkstemp's names.
    ignored = (r".+\.cu", r"tmp[a-z0-9_]{8}")

    def check(self, name: str, data: bytes) -> None:
        if data[:_DIGEST] != hashlib.sha1(data[_DIGEST:], usedforsecurity=False).hexdigest().encode():
            raise EntryRefused(f"{name} does not match its own digest", because="torn")


TOOL = CuPy()
