"""Arguments and answers as JSON: plain values, and the few kinds of object that device questions deal in.

An object that only carries facts (a device's properties) travels as its attributes and its text. Nothing is unpickled.
"""

import importlib
from collections.abc import Mapping
from typing import Any

_PLAIN = (type(None), bool, int, float, str)
#: torch's objects that their text can make again.
_BY_TEXT = {"torch.device": "device", "torch.dtype": "dtype"}


class Untold(TypeError):
    """A value that cannot be said in JSON: the question goes to the real function."""


class Attributes:
    """An object of facts, standing in for the library's own: same attributes, same text, equal to its like."""

    def __init__(self, kind: str, text: str, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)
        self._kind, self._text = kind, text

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`isinstance` with the library's own class holds."""
        found = _find(self._kind)
        return found if isinstance(found, type) else Attributes

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        mine = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        return str(other) == str(self) and all(getattr(other, name, None) == value for name, value in mine.items())

    def __hash__(self) -> int:
        return hash(self._text)


def to_json(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list):
        return [to_json(one) for one in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise Untold("a dictionary whose keys are not texts")
        return {"is": "dict", "of": {key: to_json(one) for key, one in value.items()}}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if type(value) is tuple:
        return {"is": "tuple", "of": [to_json(one) for one in value]}
    if kind in _BY_TEXT:
        return {"is": kind, "of": str(value)}
    if kind.endswith("DeviceProperties"):
        return {"is": "attributes", "kind": kind, "text": repr(value), "of": _attributes(value)}
    raise Untold(kind)


def _attributes(value: Any) -> dict[str, Any]:
    found = {}
    for name in dir(value):
        one = None if name.startswith("_") else getattr(value, name)
        if one is None or callable(one):
            continue
        try:
            found[name] = to_json(one)
        except Untold as kind:
            # Such as the UUID, which has a class of its own: code prints and compares it.
            found[name] = {"is": "attributes", "kind": str(kind), "text": str(one), "of": {}}
    return found


def from_json(data: Any) -> Any:
    if isinstance(data, list):
        return [from_json(one) for one in data]
    if not isinstance(data, dict):
        return data
    kind = data["is"]
    if kind == "tuple":
        return tuple(from_json(one) for one in data["of"])
    if kind == "dict":
        return {key: from_json(one) for key, one in data["of"].items()}
    if kind == "attributes":
        return Attributes(data["kind"], data["text"], {key: from_json(one) for key, one in data["of"].items()})
    import torch

    if kind == "torch.dtype":
        return getattr(torch, str(data["of"]).removeprefix("torch."))
    return torch.device(data["of"])


def error_to_json(error: BaseException) -> dict[str, str]:
    return {"kind": f"{type(error).__module__}.{type(error).__qualname__}", "text": str(error)}


def error_from_json(data: Mapping[str, str]) -> Exception:
    """The error that the real function raised: its own class where that can be made from a text."""
    kind = _find(data["kind"])
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(data["text"])
        except Exception:
            pass
    return RuntimeError(data["text"])


def _find(dotted: str) -> Any:
    """What a dotted name means, if its module has been or can be imported."""
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
