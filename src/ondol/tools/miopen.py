"""MIOpen 3: text files of `key=value` lines, `<device>.<backend>.<version>.{ufdb,udb}.txt`, to which results are added.

Facts: a new line is appended in place, a changed one makes the file anew beside it (`.temp`) and renames it, under a
lock in the temporary directory. The name holds device and version. What MIOpen compiled (`*.ukdb`) has no version in a
directory that we name, so that one MIOpen would be served another one's kernels: not ours to share.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.api import CacheDir
from ondol.tools.shapes import Shape
from ondol.tools.snapshot import Snapshots
from ondol.tools.table import BY_NAME


class MIOpen(Snapshots):
    row = BY_NAME["miopen"]
    shapes = (Shape(r"(?P<title>[^/]+\.\d+_\d+_\d+[^/]*\.uf?db\.txt)", tuned=True),)
    ignored = (r".+\.temp", r".+\.ukdb(?:-.*)?")

    def check(self, name: str, data: bytes) -> None:
        if not data.endswith(b"\n") or not all(b"=" in line for line in data.splitlines()):
            raise EntryRefused(f"{name} ends in half a line", because="torn")

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        del cache, path
        return b"\n".join(sorted(data.splitlines()))


TOOL = MIOpen()
