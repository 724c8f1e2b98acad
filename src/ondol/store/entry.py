"""What an entry is: its address, its files, and the bounds that any entry from anywhere must keep.

The same checks run when an entry is made and when bytes that claim to be one are read, so that nothing can be published
that a reader would refuse. Pure: no I/O here.
"""

from typing import Any, NamedTuple

from ondol.errors import PackError
from ondol.foreign_text import is_plain_name

#: Bounds on hostile or broken input. Largest real Triton entry seen: 4 MB, 9 files; the rest is room for other tools.
MAX_FILES = 4096
MAX_RAW_BYTES = 1 << 30
MAX_MANIFEST_BYTES = 1 << 20
#: The largest pack that can be legal; nothing larger is even read.
MAX_PACK_BYTES = MAX_RAW_BYTES + MAX_MANIFEST_BYTES + 4096
MAX_NAME_BYTES = 512
MAX_DEPTH = 8
#: No file system takes a longer component.
MAX_PART_BYTES = 255
#: Real kernels compress 10 to 1; zstd can claim 100,000 to 1, and a reader must not be made to believe it.
MAX_RATIO = 1000


class Address(NamedTuple):
    """Where an entry belongs: which trust namespace, which tool, built for what, under which of the tool's keys."""

    scope: str
    tool: str
    fingerprint: str
    key: str


class File(NamedTuple):
    name: str
    executable: bool
    data: bytes | memoryview


class Entry(NamedTuple):
    """One entry with its contents, path-free, as it travels."""

    address: Address
    files: tuple[File, ...]
    #: What a person calls it (a kernel's name).
    title: str = ""
    #: What making it cost, where known: what a hit saves.
    seconds: float = 0.0
    provenance: dict[str, Any] = {}

    @property
    def raw_bytes(self) -> int:
        return sum(len(file.data) for file in self.files)


def check_address(address: Address) -> Address:
    for field, value in zip(Address._fields, address, strict=True):
        if not is_plain_name(value):
            raise PackError(f"{field} {value!r} is not a plain name")
    return address


def check_name(name: object) -> str:
    """A file's name inside its entry: a relative path of plain components, nothing that could lead elsewhere."""
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise PackError(f"file name {name!r:.80} is not a plain relative path", because="empty or too long")
    parts = name.split("/")
    if len(parts) > MAX_DEPTH:
        raise PackError(f"file name {name!r:.80} is not a plain relative path", because="too deep")
    for part in parts:
        if len(part.encode("utf-8", "replace")) > MAX_PART_BYTES:
            raise PackError(f"file name {name!r:.80} is not a plain relative path", because="too long")
        if part in ("", ".", ".."):
            raise PackError(f"file name {name!r:.80} is not a plain relative path", because="leads elsewhere")
        if part.isascii() and part.isprintable():
            continue
        if any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF or ord(letter) == 127 for letter in part):
            raise PackError(f"file name {name!r:.80} is not a plain relative path", because="control characters")
    return name


def check_table(names: list[str], sizes: list[int]) -> int:
    """The bounds over all files of one entry; returns the sum of their sizes."""
    if not names:
        raise PackError("an entry without files")
    if len(names) > MAX_FILES:
        raise PackError(f"{len(names)} files in one entry", because=f"more than {MAX_FILES}")
    folders = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    if len(set(names)) != len(names) or folders & set(names):
        raise PackError("the same name twice in one entry")
    total = sum(sizes)
    if min(sizes) < 0 or total > MAX_RAW_BYTES:
        raise PackError(f"{total} bytes in one entry", because=f"more than {MAX_RAW_BYTES}, or a negative size")
    return total
