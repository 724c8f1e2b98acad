"""Entries, packs and Triton caches made by hand, for tests that need many or broken ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ondol.store import marker
from ondol.store.entry import Address, Entry, File

T = TypeVar("T")


def present(found: T | None) -> T:
    """What must be there: a pipe that was asked for, an element, a match."""
    assert found is not None
    return found


def trust_everybody(_marker: marker.Marker) -> Callable[..., bool]:
    return lambda _uid, scope="": True


def key_of(number: int) -> str:
    """A name of the shape of a Triton key."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    digits = [letters[(number >> (5 * place)) & 31] for place in range(10)]
    return "".join(digits).rjust(52, "K")


def make_entry(number: int = 0, content: bytes = b"", scope: str = "main") -> Entry:
    """A small entry that is unlike any other number's."""
    body = content or f"kernel {number}".encode() * 50
    files = (File("add.cubin", False, body), File("add.json", False, b'{"n": %d}' % number))
    return Entry(Address(scope, "triton", "any", key_of(number)), files, f"kernel_{number}", 1.5, {"uid": os.getuid()})


def elf(body: bytes = b"") -> bytes:
    """The smallest thing that looks like a whole 64-bit ELF file."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    return bytes(header) + body


def write_triton_entry(
    cache: Path, number: int, name: str = "add", body: bytes = b"code", *, sources: bool = True
) -> Path:
    """A key directory as Triton writes it, group file last."""
    folder = cache / key_of(number)
    folder.mkdir(parents=True)
    children = {f"{name}.source": b"source of %d" % number, f"{name}.ttir": b"module {}"} if sources else {}
    children |= {
        f"{name}.cubin": elf(body),
        f"{name}.json": json.dumps({"hash": str(number), "triton_version": "3.9.0"}).encode(),
    }
    for child, data in children.items():
        (folder / child).write_bytes(data)
    group = {"child_paths": {child: str(folder / child) for child in children}}
    (folder / f"__grp__{name}.json").write_text(json.dumps(group))
    return folder
