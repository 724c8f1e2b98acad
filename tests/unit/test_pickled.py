"""Pickles of others are read and changed without being unpickled."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondol.tools import pickled

OLD, LONGER, SHORTER = "/rooms/one", "/somewhere/else/" + "x" * 300, "/r"
plain = st.text() | st.text().map(lambda text: text + OLD + text) | st.binary() | st.integers() | st.none()
things = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def moved(thing: Any, new: str) -> Any:
    if isinstance(thing, str):
        return thing.replace(OLD, new)
    if isinstance(thing, list):
        return [moved(item, new) for item in thing]
    if isinstance(thing, dict):
        return {moved(key, new): moved(item, new) for key, item in thing.items()}
    return thing


@settings(deadline=None)
@given(things, st.sampled_from([4, 5]), st.sampled_from([LONGER, SHORTER]))
def test_replacing_texts_leaves_the_rest_as_it_was(thing: Any, protocol: int, new: str) -> None:
    data = pickle.dumps(["y" * 70_000, thing, OLD, [OLD], OLD.encode()], protocol)
    changed = pickled.replace(data, re.compile(re.escape(OLD.encode())), new.encode())
    assert pickle.loads(changed) == ["y" * 70_000, moved(thing, new), new, [new], OLD.encode()]
    assert pickled.replace(changed, re.compile(b"not in it"), b"x") == changed


class Graph:
    def __init__(self, **fields: Any) -> None:
        self.__dict__ |= fields


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("2 <= s0", "str", "2 <= s0"),
        ("s" * 300, "str", "s" * 300),
        ("", "str", ""),
        (None, "str", None),
        (7, "int", 7),
        (1 << 40, "int", 1 << 40),
        (7, "str", "?"),
        ([], "str", "?"),
    ],
)
def test_field_is_read_as_it_was_pickled(value: Any, kind: str, expected: Any) -> None:
    inner = Graph(other_guards="1 <= s1", guards_expression="no")
    assert pickled.field(pickle.dumps(Graph(guards=value, inner=inner)), "guards", kind, "?") == expected


def test_field_that_is_a_reference_is_not_taken_for_a_number() -> None:
    guards = "2 <= s0"
    assert pickled.field(pickle.dumps([guards, Graph(guards=guards)]), "guards", "int", "?") == "?"


@pytest.mark.parametrize("data", [b"", b"\x80\x04", b"\x80\x04\xff.", pickle.dumps("cut")[:-3]])
def test_what_is_no_pickle_is_not_changed(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"pickle|opcode|expected"):
        pickled.replace(data, re.compile(b"x"), b"y")
