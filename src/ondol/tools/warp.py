"""NVIDIA Warp 1.19: a directory per module and hash; in it a binary per target, one source and one `.meta` for all.

    <version>/wp_<module>_<hash>/wp_<module>_<hash>.{cu,sm80.cubin,sm90.cubin,cpp,cpu870d85ff.o,meta}
    <version>/lto/<hash>.lto, with .meta or _fatbin.lto where there is one

Facts: built in `<directory>_p<pid>_t<thread>/` and renamed, or moved in file by file where the directory is there. A
second target adds its binary later, so each binary is an entry, with the `.meta` that it needs. A module without its
hash in the name (`strip_hash`) says nothing about its contents and stays behind.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped, parsed, whole_elf
from ondol.tools.table import BY_NAME

_MODULE = r"[^/]+/(?P<module>wp_(?P<title>[^/]+)_[0-9a-f]{7})/(?P=module)"


class Warp(Shaped):
    row = BY_NAME["warp"]
    shapes = (
        Shape(_MODULE + r"\.sm\d+[a-z]?\.(?:cubin|ptx)", partners=("{module}.meta",)),
        Shape(_MODULE + r"(?:\.cpu[0-9a-f]+)?\.o", host_code=True, partners=("{module}.meta",)),
        Shape(r"[^/]+/lto/(?P<hash>[0-9a-f]{16})(?:\.meta|_fatbin\.lto)", partners=("{hash}.lto",)),
        Shape(r"[^/]+/lto/[0-9a-f]{16}\.lto"),
    )
    #: Sources are for people; a build that is not finished is nobody's.
    ignored = (_MODULE + r"\.(?:cu|cpp|meta)", r"[^/]+/[^/]+_p\d+_t\d+(?:/.*)?")

    def check(self, name: str, data: bytes) -> None:
        if name.endswith((".o", ".cubin")) and not whole_elf(data):
            raise EntryRefused(f"{name} is cut off", because="torn")
        if name.endswith(".meta"):
            parsed(name, data)


TOOL = Warp()
