"""`typing`'s names without `typing`'s price.

Importing `typing` and building its NamedTuples costs 6 ms, half as much as starting Python, before every job. Type
checkers see the real things here; at run time `Record` is a small tuple class with the same use, and annotations are
never evaluated.
"""

from __future__ import annotations

from operator import itemgetter

__all__ = ["Any", "Protocol", "Record"]

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Protocol
    from typing import NamedTuple as Record
else:
    Any = object

    class Protocol:
        """A contract; only type checkers look at it."""

    class Record(tuple):
        """An immutable value with named fields, as `typing.NamedTuple`: annotations are fields, values are defaults."""

        __slots__ = ()
        _fields: tuple[str, ...] = ()
        _defaults: dict[str, object] = {}

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
            for position, name in enumerate(cls._fields):
                setattr(cls, name, property(itemgetter(position)))

        def __new__(cls, *values, **named):
            if not named and len(values) == len(cls._fields):
                return tuple.__new__(cls, values)
            if len(values) < len(cls._fields):
                try:
                    rest = cls._fields[len(values) :]
                    values += tuple(named.pop(name) if name in named else cls._defaults[name] for name in rest)
                except KeyError as missing:
                    raise TypeError(f"{cls.__name__} needs {missing}") from None
            if named or len(values) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has no place for {list(named) or values[len(cls._fields) :]}")
            return tuple.__new__(cls, values)

        def _replace(self, **changes):
            return type(self)(**{**self._asdict(), **changes})

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self) -> str:
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"
