"""The other modules that decide: where the room goes, what is filled, what is cleaned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import key_of
from ondol.errors import RoomError
from ondol.room import choose, select
from ondol.store import gc_plan
from ondol.store.api import Stored
from ondol.store.entry import Address
from ondol.tools.api import version_of

GOOD, BAD, NETWORK, BAD_NETWORK = "good", "full", "network", "full network"


def pick(**tried: str) -> choose.RoomChoice:
    offers = [choose.Candidate(f"/{name}", name) for name in tried]
    return choose.choose(
        offers, lambda path: "network" in tried[path[1:]], lambda path: "full" if "full" in tried[path[1:]] else ""
    )


def test_first_usable_local_directory() -> None:
    assert pick(a=BAD, b=NETWORK, c=GOOD, d=GOOD).candidate.path == "/c"
    assert pick(a=GOOD, b=GOOD).passed == ()


def test_network_directory_is_not_taken_where_another_exists() -> None:
    assert pick(a=NETWORK, b=BAD, c=GOOD).candidate.path == "/c"
    assert pick(a=NETWORK, b=BAD, c=NETWORK).candidate.path == "/a"
    assert pick(a=BAD_NETWORK, b=BAD, c=NETWORK).candidate.path == "/c"


def test_network_directory_is_not_touched_while_a_local_one_works() -> None:
    """A dead file server never answers; asking it is asking to hang."""
    asked: list[str] = []

    def why_not(path: str) -> str:
        asked.append(path)
        return ""

    offers = [choose.Candidate("/dead", "TMPDIR"), choose.Candidate("/tmp", "default")]
    choice = choose.choose(offers, lambda path: path == "/dead", why_not)
    assert (choice.candidate.path, asked) == ("/tmp", ["/tmp"])


def test_nothing_usable_names_every_reason() -> None:
    with pytest.raises(RoomError) as caught:
        pick(a=BAD, b=BAD)
    assert caught.value.because == "/a: full; /b: full"
    assert "--room-dir" in caught.value.hint


def test_candidates_in_the_promised_order_each_once() -> None:
    env = {"SLURM_TMPDIR": "/s", "RUNNER_TEMP": "/r", "TMPDIR": "/tmp", "OTHER": "/o"}
    assert [c.path for c in choose.candidates("/mine", env)] == ["/mine", "/s", "/r", "/tmp", "/var/tmp"]
    assert [c.path for c in choose.candidates("", {})] == ["/tmp", "/var/tmp"]


def stored(
    number: int, size: int = 10, published: float = 0.0, fingerprint: str = "any", place: str = "lane"
) -> Stored:
    return Stored(Address("main", "triton", fingerprint, key_of(number)), place, 0, size, published, True)


def test_everything_fits() -> None:
    choice = select.select([stored(1), stored(2)], lambda _: True, {}, budget=20)
    assert [[s.address.key for s in entry] for entry in choice.wanted] == [[key_of(1)], [key_of(2)]]
    assert choice.left_out == 0


def test_no_file_is_read_for_each_of_a_thousand_entries() -> None:
    """Whether a fingerprint fits may depend on the processor's description and on installed packages."""
    asked: list[str] = []

    def accepts(fingerprint: str) -> bool:
        asked.append(fingerprint)
        return fingerprint == "here"

    index = [stored(number, fingerprint=("here", "elsewhere")[number % 2]) for number in range(1000)]
    assert len(select.select(index, accepts, {}, budget=10**6).wanted) == 500
    assert sorted(asked) == ["elsewhere", "here"]


def test_copies_of_one_entry_are_tried_in_order() -> None:
    choice = select.select([stored(1, place="mine"), stored(1, place="theirs")], lambda _: True, {}, budget=100)
    assert [[s.place for s in entry] for entry in choice.wanted] == [["mine", "theirs"]]


def test_versions_of_one_thing_all_land_in_the_room() -> None:
    """One directory can hold one of them: they take turns, newest first, until one fits."""
    index = [
        Stored(Address("main", "torch-extensions", "any", key), "lane", 0, 10, published, True)
        for key, published in (("a@1", 1.0), ("a@2", 3.0), ("b@1", 2.0), ("plain", 0.0), ("a@3", 2.0))
    ]
    choice = select.select(index, lambda _: True, {}, budget=100, version_of=version_of)
    assert [[s.address.key for s in entry] for entry in choice.wanted] == [["a@2", "a@3", "a@1"], ["b@1"], ["plain"]]


def test_least_recently_useful_left_out_first() -> None:
    index = [stored(1, published=100.0), stored(2, published=300.0), stored(3, published=200.0)]
    uses = {index[0].address: 400.0}
    choice = select.select(index, lambda _: True, uses, budget=20)
    assert [entry[0].address.key for entry in choice.wanted] == [key_of(1), key_of(2)]
    assert choice.left_out == 1


def test_what_cannot_work_here_is_not_filled() -> None:
    choice = select.select(
        [stored(1, fingerprint="riscv64-musl-x"), stored(2)], lambda mark: mark == "any", {}, budget=100
    )
    assert [entry[0].address.key for entry in choice.wanted] == [key_of(2)]


def test_two_states_of_one_thing_are_not_both_filled() -> None:
    """Files of both would be mixed; the newest is wanted, whatever the order, and others are not touched by it."""
    index = [stored(n, published=float(time)) for n, time in ((1, 5), (2, 9), (3, 7), (4, 1))]
    rivals = {key_of(1): "a", key_of(2): "a", key_of(3): "a", key_of(4): "b"}
    for order in (index, index[::-1]):
        choice = select.select(order, lambda _: True, {}, 100, rivals.__getitem__)
        assert {entry[0].address.key for entry in choice.wanted} == {key_of(2), key_of(4)}


def test_one_key_for_two_pythons_competes() -> None:
    """Different fingerprints under one key lie side by side: helpers of two Pythons."""
    index = [stored(1, fingerprint="x86_64-glibc-cpython-311"), stored(1, fingerprint="x86_64-glibc-cpython-312")]
    assert len(select.select(index, lambda _: True, {}, 100, lambda key: key).wanted) == 2


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1000)), max_size=30),
    st.integers(0, 500),
    st.floats(0, 1000),
    st.integers(0, 500),
    st.integers(0, 300),
)
def test_cleaning_removes_what_it_should_and_no_more(
    facts: list[tuple[int, float]], max_bytes: int, max_age: float, min_free: int, free: int
) -> None:
    """After the plan all limits hold as far as removing can make them; undoing any single removal breaks one again."""
    candidates = [gc_plan.Removable(stored(n, size), useful) for n, (size, useful) in enumerate(facts)]
    total = sum(size for size, _ in facts)
    limits = gc_plan.StoreLimits(max_bytes, max_age, min_free)
    removals = gc_plan.plan(candidates, limits, 1000.0, free)
    removed = {r.stored.address for r in removals}
    gone = sum(r.stored.size for r in removals)
    kept = [c for c in candidates if c.stored.address not in removed]
    assert all(1000.0 - c.useful_at <= max_age for c in kept)
    assert total - gone <= max_bytes or not kept
    assert free + gone >= min_free or not kept
    if kept:
        oldest_kept = min(c.useful_at for c in kept)
        for removal in removals:
            useful = next(c.useful_at for c in candidates if c.stored == removal.stored)
            assert useful <= oldest_kept
    last = [r for r in removals if r.reason != "age"][-1:]
    for removal in last:  # the last one taken for space was really needed
        left = gone - removal.stored.size
        assert total - left > max_bytes or free + left < min_free


def test_no_limits_remove_nothing() -> None:
    assert gc_plan.plan([gc_plan.Removable(stored(1), 0.0)], gc_plan.StoreLimits(), 1e9, 0) == []


#: (owner, size, useful at, whether we may remove it); owners below 3 are trusted.
_HELD = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50), st.floats(0, 1000), st.booleans()), max_size=40)


def held(facts: list[tuple[int, int, float, bool]]) -> list[gc_plan.Removable]:
    return [
        gc_plan.Removable(stored(n, size)._replace(owner=owner, trusted=owner < 3), useful, ours)
        for n, (owner, size, useful, ours) in enumerate(facts)
    ]


def weight(candidates: list[gc_plan.Removable]) -> int:
    return sum(candidate.stored.weight for candidate in candidates)


@given(_HELD, st.integers(0, 800))
def test_cleaning_takes_a_fair_share_from_those_who_hold_less(
    facts: list[tuple[int, int, float, bool]], max_bytes: int
) -> None:
    """Whoever holds no more than an equal part of what is left for his kind loses nothing; nobody's are taken that are
    not ours; and of each owner the least recently useful go.
    """
    candidates = held(facts)
    removed = {r.stored.address for r in gc_plan.plan(candidates, gc_plan.StoreLimits(max_bytes), 1000.0, 0)}
    assert all(c.ours for c in candidates if c.stored.address in removed)
    room = max_bytes
    for trusted in (True, False):
        kind = [c for c in candidates if c.stored.trusted == trusted]
        owners = {c.stored.owner for c in kind}
        for owner in owners:
            theirs = [c for c in kind if c.stored.owner == owner]
            lost = [c for c in theirs if c.stored.address in removed]
            if weight(theirs) * len(owners) <= room:
                assert lost == []
            kept = [c.useful_at for c in theirs if c.ours and c not in lost]
            assert not lost or not kept or max(c.useful_at for c in lost) <= min(kept)
        room = max(room - weight(kind), 0)


@given(_HELD, _HELD, st.integers(0, 800))
def test_what_strangers_hold_costs_trusted_writers_nothing(
    facts: list[tuple[int, int, float, bool]], strangers: list[tuple[int, int, float, bool]], max_bytes: int
) -> None:
    trusted = [c for c in held(facts) if c.stored.trusted]
    others = [c for c in held([*facts, *strangers])[len(facts) :] if not c.stored.trusted]
    limits = gc_plan.StoreLimits(max_bytes)
    alone = gc_plan.plan(trusted, limits, 1000.0, 0)
    crowded = gc_plan.plan([*others, *trusted], limits, 1000.0, 0)
    assert [r for r in crowded if r.stored.trusted] == alone


@given(_HELD, st.integers(0, 800), st.floats(1001 + 86400, 1e12))
def test_time_that_has_not_come_is_not_believed(
    facts: list[tuple[int, int, float, bool]], max_bytes: int, future: float
) -> None:
    """Dating an entry ahead makes it go first, and changes nothing for those that stay."""
    candidates = held([(0, size, useful, True) for _, size, useful, _ in facts])
    dated = [c._replace(useful_at=future) if n % 2 else c for n, c in enumerate(candidates)]
    removed = [r.stored for r in gc_plan.plan(dated, gc_plan.StoreLimits(max_bytes), 1000.0, 0)]
    honest = [c.stored for c in dated if c.useful_at <= 1000.0 and c.useful_at > 0]
    ahead = [c.stored for c in dated if c.useful_at == future]
    assert not set(removed) & set(honest) or set(ahead) <= set(removed)


def test_size_that_no_pack_can_have_counts_against_nobody() -> None:
    """A sparse terabyte takes no blocks: it goes, and nothing else does."""
    giant = stored(1, size=1 << 40)._replace(owner=7, trusted=False, on_disk=0)
    candidates = [gc_plan.Removable(giant, 2e9), gc_plan.Removable(stored(2), 5.0)]
    (removal,) = gc_plan.plan(candidates, gc_plan.StoreLimits(max_bytes=100), 1000.0, 0)
    assert (removal.stored, removal.reason) == (giant, "larger than any entry can be")
    beside = [candidates[0]._replace(ours=False), candidates[1]]
    assert gc_plan.plan(beside, gc_plan.StoreLimits(max_bytes=100), 1000.0, 0) == []
