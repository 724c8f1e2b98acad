"""cuda.core 1.2, `FileStreamProgramCache`: one file per program, `entries/<2>/<62>`: the bare cubin, PTX or LTO-IR.

Facts: written in `tmp/` with mode 0600, synced and renamed; the key covers compiler, linker and, where it matters, the
driver. The directory is an argument of the program, so no variable of ours moves it.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped, whole_elf
from ondol.tools.table import BY_NAME


class CudaPython(Shaped):
    row = BY_NAME["cuda-python"]
    shapes = (Shape(r"entries/[0-9a-f]{2}/[0-9a-f]{62}"),)
    ignored = (r"tmp(?:/.*)?",)

    def check(self, name: str, data: bytes) -> None:
        if data.startswith(b"\x7fELF") and not whole_elf(data):
            raise EntryRefused(f"{name} is cut off", because="torn")


TOOL = CudaPython()
