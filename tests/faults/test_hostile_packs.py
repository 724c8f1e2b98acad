"""Packs whose digest is right and whose contents are an attack: refused as bad packs, each in the same way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.forged_packs import ADDRESS, NAMES, PACKS, accepted, forge, manifest, row, with_names
from handmade import make_entry
from ondol.errors import PackError
from ondol.store import pack

pytestmark = pytest.mark.fault
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


def test_forging_makes_good_packs_when_asked_to() -> None:
    """Without its change a forged pack is accepted: what refuses the others is the change."""
    assert pack.decode(forge(manifest()), ADDRESS).files[0].name == "add.cubin"
    assert len(pack.decode(with_names("a", "b/c"), ADDRESS).files) == 2


@pytest.mark.parametrize("what", NAMES)
def test_name_that_leads_elsewhere_is_refused(what: str) -> None:
    """No name in a pack can point outside its entry, hide, or confuse a terminal."""
    assert accepted(with_names(NAMES[what])) == ""


@pytest.mark.parametrize("what", PACKS)
def test_hostile_pack_is_refused(what: str) -> None:
    """Whatever a pack claims, reading it ends in PackError: never in another error, never in memory or bytes."""
    assert accepted(PACKS[what]()) == ""


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    """Bytes that nobody made a pack of are not one."""
    assert accepted(data) == ""


@settings(max_examples=300, deadline=None, database=None)
@given(st.dictionaries(st.sampled_from(sorted(manifest())), _JSON, max_size=3), st.lists(_JSON, max_size=4))
def test_arbitrary_manifests_never_crash_a_reader(changes: dict[str, object], odd_row: list[object]) -> None:
    """With any JSON in any place of the manifest, a reader has an entry or a PackError."""
    for files in ([row(), odd_row], [row()]):
        try:
            entry = pack.decode(forge({**manifest(files=files), **changes}), ADDRESS)
        except PackError:
            continue
        assert entry.address == ADDRESS


@settings(max_examples=300, deadline=None, database=None)
@given(st.data())
def test_bytes_exchanged_anywhere_are_refused(data: st.DataObject) -> None:
    """Any stretch of a good pack replaced by other bytes makes a bad pack."""
    good = pack.encode(make_entry(1))
    start = data.draw(st.integers(0, len(good) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=40))
    bad = good[:start] + patch + good[start + len(patch) :]
    if bad != good:
        assert accepted(bad) == ""
