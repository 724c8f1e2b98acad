"""Records as plain lists, and back: for the pipe from a helper process, and for notes that only we can write.

Neither marshal nor JSON knows a tuple with names. Each container becomes a list whose first item says what it was.
"""

import sys
from typing import Any

_LIST, _TUPLE, _DICT = 0, 1, 2


def plain(value: Any) -> Any:
    kind = type(value)
    if kind is list or kind is tuple:
        return [_LIST if kind is list else _TUPLE, *map(plain, value)]
    if kind is dict:
        return [_DICT, *(plain(part) for pair in value.items() for part in pair)]
    if isinstance(value, tuple):
        return [f"{kind.__module__}:{kind.__name__}", *map(plain, value)]
    return value


def real(value: Any) -> Any:
    """Raises `ValueError` for anything else than what `plain` makes."""
    if type(value) is not list:
        return value
    if not value:
        raise ValueError("an empty list is no container")
    kind, parts = value[0], map(real, value[1:])
    if kind == _LIST:
        return list(parts)
    if kind == _TUPLE:
        return tuple(parts)
    if kind == _DICT:
        return dict(zip(parts, parts, strict=True))
    return _record(kind)(*parts)


def _record(name: object) -> Any:
    """A class of ours that holds values and does nothing else: what a note names is not called otherwise."""
    module, _, last = str(name).partition(":")
    if module.startswith("ondol."):
        try:
            __import__(module)
        except ImportError:
            raise ValueError(f"{name} is unknown here")
        found = getattr(sys.modules[module], last, None)
        if isinstance(found, type) and issubclass(found, tuple):
            return found
    raise ValueError(f"{name} is no record")
