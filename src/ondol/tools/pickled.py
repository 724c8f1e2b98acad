"""Texts and numbers inside a pickle, found and replaced without unpickling it: reading one must never run code."""

import re
from collections.abc import Iterator
from typing import Any

_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")


def operations(data: Any) -> Iterator[Any]:
    """Each instruction, its argument and its place; none is carried out."""
    import pickletools  # a job whose command leaves no pickle does without

    return pickletools.genops(data)


def field(data: bytes, name: str, kind: str, otherwise: Any) -> Any:
    """A field of the pickled object, `str` or `int`; None if it is None, `otherwise` if that cannot be told."""
    key = b"\x8c" + bytes([len(name)]) + name.encode() + b"\x94"
    start = data.rfind(key)
    if start < 0:
        return otherwise
    try:
        opcode, value, _ = next(operations(data[start + len(key) :]))
        if opcode.name == "NONE":
            return None
        return value if opcode.stack_after[0].name == kind else otherwise  # else: a reference to what was seen before
    except (ValueError, IndexError):
        return otherwise  # not a pickle after all


def texts(data: bytes) -> Iterator[str]:
    """Raises `ValueError` for what is not a pickle."""
    return (str(value) for opcode, value, _ in operations(data) if opcode.name in _TEXTS)


def replace(data: bytes, old: re.Pattern[bytes], new: bytes) -> bytes:
    """The pickle with this replaced in its texts; bytes, which are somebody's files, stay as they are.

    Raises `ValueError` for what is not a pickle.
    """
    steps = list(operations(data))
    starts = [position or 0 for _, _, position in steps]
    pieces = []
    for (opcode, value, _), start, end in zip(steps, starts, [*starts[1:], len(data)], strict=True):
        if opcode.name == "FRAME":
            continue  # it tells the length of what follows, which changes; a pickle need not have any
        if opcode.name in _TEXTS and old.search(data, start, end):
            pieces.append(_text(old.sub(lambda _: new, str(value).encode("utf-8", "surrogatepass"))))
        else:
            pieces.append(data[start:end])
    return b"".join(pieces)


def _text(text: bytes) -> bytes:
    if len(text) < 256:
        return b"\x8c" + bytes([len(text)]) + text
    return b"X" + len(text).to_bytes(4, "little") + text
