"""SGLang's JIT 0.5: a leaf per module, options and contents of everything it includes.

    <target>/<module>/build-<key>/deps-<key>/sgl_deps.json    the files it was built from, path-free, with their digests
                                             <module>.so
                                             build.ninja, *.o, *.o.d   what is left of the build: absolute paths

Facts: built in `.staging-<uuid>/` and renamed whole; a leaf is used only if the list's digests, taken again, give its
name. A library that cannot be loaded is built again.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped, parsed, whole_elf
from ondol.tools.table import BY_NAME

_LEAF = r"[^/]+/(?P<title>[^/]+)/build-[0-9a-f]{16}/deps-[0-9a-f]{16}"


class SglangJit(Shaped):
    row = BY_NAME["sglang-jit"]
    shapes = (Shape(_LEAF + r"/sgl_deps\.json", library=True, partners=("{title}.so",)),)
    ignored = (_LEAF + r"/(?!sgl_deps\.json$).+", r".+/\.staging-[^/]+(?:/.*)?", r".+/\.lock")

    def check(self, name: str, data: bytes) -> None:
        if name.endswith(".so") and not whole_elf(data):
            raise EntryRefused(f"{name} is cut off", because="torn")
        if name.endswith(".json") and not isinstance(parsed(name, data), list):
            raise EntryRefused(f"{name} is not a list of dependencies", because="torn")


TOOL = SglangJit()
