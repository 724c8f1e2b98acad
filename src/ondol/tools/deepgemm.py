"""DeepGEMM 2: one directory per kernel, `cache/kernel.<name>.<digest>/` with `kernel.cu` and `kernel.cubin`.

Facts: built in `tmp/<uuid>/`, synced, and renamed whole; a directory that lacks one of the two files is an assertion
that ends the user's program, so it never travels. The digest covers compiler version, flags (with the absolute path of
DeepGEMM's headers) and code with the hash of its includes.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped, whole_elf
from ondol.tools.table import BY_NAME


class DeepGemm(Shaped):
    row = BY_NAME["deepgemm"]
    shapes = (Shape(r"cache/kernel\.(?P<title>.+)\.[0-9a-f]+", folder=True, needs=(r"kernel\.cubin", r"kernel\.cu")),)
    ignored = (r"tmp(?:/.*)?",)

    def check(self, name: str, data: bytes) -> None:
        if name.endswith(".cubin") and not whole_elf(data):
            raise EntryRefused(f"{name} is cut off", because="torn")


TOOL = DeepGemm()
