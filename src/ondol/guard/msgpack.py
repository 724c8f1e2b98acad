"""Reading MessagePack, as uv and pip write it into their caches. Pure.

Only to tell whole files from torn ones, and to find a few fields: forty lines are less than another dependency.
"""

import struct
from typing import Any

#: first byte → (format of the number that follows it)
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
#: first byte → (what it is, format of its length)
_LENGTHS = {
    0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I"),
    0xC7: ("extension", ">B"), 0xC8: ("extension", ">H"), 0xC9: ("extension", ">I"),
    0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
    0xDC: ("array", ">H"), 0xDD: ("array", ">I"),
    0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_DEEPEST = 64


def decode(data: bytes, at: int = 0, depth: int = 0) -> tuple[Any, int]:
    """The value that begins at this byte, and where it ends. Raises `ValueError` if it does not end in `data`."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    first, at = _number(data, at, ">B")
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        return _number(data, at, _NUMBERS[first])
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 0x100), at
    kind, length, at = _length(data, first, at)
    if kind == "array":
        return _sequence(data, at, length, depth)
    if kind == "map":
        pairs, at = _sequence(data, at, 2 * length, depth)
        keys = (key if isinstance(key, str | bytes | int) else repr(key) for key in pairs[::2])
        return dict(zip(keys, pairs[1::2], strict=True)), at
    if at + length > len(data):
        raise ValueError("cut off")
    piece = data[at : at + length]
    return (piece.decode("utf-8", "replace") if kind == "text" else piece), at + length


def _length(data: bytes, first: int, at: int) -> tuple[str, int, int]:
    if first < 0xC0:
        if first >= 0xA0:
            return "text", first & 0x1F, at
        return ("array" if first >= 0x90 else "map"), first & 0x0F, at
    if 0xD4 <= first <= 0xD8:
        return "extension", 1 + (1 << (first - 0xD4)), at
    if first not in _LENGTHS:
        raise ValueError("not MessagePack")
    kind, form = _LENGTHS[first]
    length, at = _number(data, at, form)
    return kind, length + (kind == "extension"), at


def _sequence(data: bytes, at: int, length: int, depth: int) -> tuple[list[Any], int]:
    if length > len(data) - at:
        raise ValueError("cut off")
    found = []
    for _ in range(length):
        value, at = decode(data, at, depth + 1)
        found.append(value)
    return found, at


def _number(data: bytes, at: int, form: str) -> tuple[Any, int]:
    try:
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    except struct.error:
        raise ValueError("cut off")
