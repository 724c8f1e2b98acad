"""What every place for packs must do, whatever it is made of: the contract of `ondol.store.api`, as tests.

A backend's own test module subclasses `BackendSuite` and provides `place`: something that opens any number of independent
connections to one empty place.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import pytest

from handmade import key_of, make_entry, write_triton_entry
from ondol.errors import PackError, StoreError
from ondol.host import identity
from ondol.room import fill, harvest, publish
from ondol.room.publish import Publisher, PublishResult
from ondol.store import pack
from ondol.store.api import Backend, Stat
from ondol.store.entry import Address, Entry
from ondol.tools.api import CacheDir
from ondol.tools.triton import Triton
from ondol.trust import keys


class Place(Protocol):
    def open(self) -> Backend: ...

    def corrupt(self, address: Address) -> None:
        """Damage the stored bytes of an address behind the backend's back."""


def offer(backend: Backend, *entries: Entry) -> list[bool]:
    return [outcome.new for outcome in backend.publish([(entry.address, pack.encode(entry)) for entry in entries])]


def read(backend: Backend, entry: Entry) -> Entry | None:
    for stored in backend.index(entry.address.tool, [entry.address.scope]):
        if stored.address == entry.address:
            return pack.decode(backend.fetch(stored), stored.address)
    return None


def publish_cache(backend: Backend, path: Path) -> PublishResult:
    """Everything in a cache, as the end of a job does."""
    cache, tool = CacheDir(str(path), ours=True), Triton()
    found = harvest.new_entries(tool, cache, (), identity.this_host()).found
    publisher = Publisher(backend, tool, cache, "main", {})
    return publish.publish(publisher, found, lambda _done, _total: None, 60.0)


def fill_cache(backend: Backend, path: Path, processes: int = 1) -> fill.FillResult:
    """Everything that is there, as the beginning of a job does."""
    (path / "cache").mkdir(parents=True)
    (path / "stage").mkdir()
    cache, stage = CacheDir(str(path / "cache"), ours=True), str(path / "stage")
    wanted = [[stored] for stored in backend.index("triton", ["main"])]
    return fill.fill(backend, Triton(), wanted, cache, stage, lambda _done, _total: None, processes, 60.0)


class BackendSuite:
    def test_cache_travels_from_one_job_to_the_next(self, place: Place, tmp_path: Path) -> None:
        """By the contract alone: whatever publishing and filling use, every place has. In several processes, too."""
        for number in range(80):
            write_triton_entry(tmp_path / "made", number)
        first = publish_cache(place.open(), tmp_path / "made")
        assert (first.published, first.already_there, first.refused, first.trouble) == (80, 0, (), None)
        again = publish_cache(place.open(), tmp_path / "made")
        assert (again.published, again.already_there) == (0, 80)
        result = fill_cache(place.open(), tmp_path / "room", processes=2)
        assert ({entry.address.key for entry in result.filled}, result.bad) == ({key_of(n) for n in range(80)}, ())
        for made in (tmp_path / "made").glob("*/*.cubin"):
            there = tmp_path / "room" / "cache" / made.relative_to(tmp_path / "made")
            assert there.read_bytes() == made.read_bytes()

    def test_bad_pack_is_never_filled_and_keeps_no_key_cold(self, place: Place, tmp_path: Path) -> None:
        write_triton_entry(tmp_path / "made", 1)
        publish_cache(place.open(), tmp_path / "made")
        (address,) = [stored.address for stored in place.open().index("triton", ["main"])]
        place.corrupt(address)
        assert publish_cache(place.open(), tmp_path / "made").published == 1
        place.corrupt(address)
        result = fill_cache(place.open(), tmp_path / "room")
        assert (result.filled, len(result.bad)) == ((), 1)

    def test_writer_whom_no_reader_would_believe_publishes_nothing(self, place: Place, tmp_path: Path) -> None:
        write_triton_entry(tmp_path / "made", 1)
        backend = place.open()

        def refuse(scope: str, signs: bool) -> None:
            raise StoreError(f"{scope} {signs}")

        backend.check_writer = refuse
        with pytest.raises(StoreError, match="main False"):
            publish_cache(backend, tmp_path / "made")
        assert list(place.open().everything()) == []

    def test_what_this_reader_trusts_is_what_it_lists(self, place: Place) -> None:
        backend = place.open()
        offer(backend, make_entry(1))
        (stored,) = backend.index("triton", ["main"])
        assert backend.trusts(stored.owner)
        assert backend.trusts(stored.owner, "main")

    def test_find_and_has_more_than_tell_what_index_tells(self, place: Place) -> None:
        backend = place.open()
        offer(backend, *(make_entry(number) for number in range(5)))
        wanted = [make_entry(number).address for number in (1, 3, 9)]
        there = {stored.address for stored in backend.index("triton", ["main"])}
        assert {stored.address for stored in backend.find(wanted)} == there & set(wanted)
        assert [backend.has_more_than(number, "triton", ["main"]) for number in (4, 5)] == [True, False]
        assert backend.tools(["main"]) >= {"triton"}
        assert not backend.has_more_than(0, "triton", ["x"])

    def test_what_was_published_is_read_by_another_connection(self, place: Place) -> None:
        entry = make_entry(1)
        assert offer(place.open(), entry) == [True]
        assert read(place.open(), entry) == entry

    def test_nothing_there_is_an_empty_list(self, place: Place) -> None:
        backend = place.open()
        assert backend.index("triton", ["main", "pr-1"]) == []
        assert list(backend.everything()) == []
        assert backend.last_uses() == {}

    def test_first_wins_and_stays(self, place: Place) -> None:
        first, second = make_entry(1, b"first"), make_entry(1, b"second")
        assert offer(place.open(), first) == [True]
        assert offer(place.open(), second) == [False]
        assert read(place.open(), first) == first

    def test_many_at_once_keep_their_order_and_outcomes(self, place: Place) -> None:
        backend = place.open()
        offer(backend, make_entry(7))
        entries = [make_entry(number) for number in range(150)]
        assert offer(backend, *entries) == [number != 7 for number in range(150)]
        assert len(backend.index("triton", ["main"])) == 150

    def test_publishing_nothing_is_fine(self, place: Place) -> None:
        assert place.open().publish([]) == []

    def test_scopes_and_tools_are_apart(self, place: Place) -> None:
        backend = place.open()
        offer(backend, make_entry(1, scope="main"), make_entry(2, scope="pr-9"))
        keys = [
            [s.address.scope for s in backend.index("triton", scopes)] for scopes in (["main"], ["pr-9", "main"], ["x"])
        ]
        assert keys == [["main"], ["pr-9", "main"], []]
        assert backend.index("inductor", ["main"]) == []

    def test_set_aside_is_a_miss_and_can_be_published_again(self, place: Place) -> None:
        backend, entry = place.open(), make_entry(1)
        offer(backend, entry)
        (stored,) = backend.index("triton", ["main"])
        assert backend.set_aside(stored)
        assert place.open().index("triton", ["main"]) == []
        assert offer(place.open(), entry) == [True]

    def test_bad_earlier_pack_does_not_block_its_key(self, place: Place) -> None:
        backend, entry = place.open(), make_entry(1)
        offer(backend, entry)
        place.corrupt(entry.address)
        with pytest.raises(PackError):
            read(place.open(), entry)
        assert offer(place.open(), entry) == [True]
        assert read(place.open(), entry) == entry

    def test_deleting_is_whole_and_told_once(self, place: Place) -> None:
        backend = place.open()
        offer(backend, make_entry(1), make_entry(2))
        stored = backend.index("triton", ["main"])[0]
        assert backend.delete(stored)
        assert not backend.delete(stored)
        assert [s.address for s in place.open().index("triton", ["main"])] != [stored.address]
        with pytest.raises(OSError):
            backend.fetch(stored)

    def test_signature_travels_with_its_pack(self, place: Place) -> None:
        """A backend moves bytes: what was signed is signed at the other end, and is judged by whoever reads."""
        entry = make_entry(1)
        by_us = keys.signer(keys.new())
        place.open().publish([(entry.address, pack.encode(entry, by_us.sign))])
        reader = place.open()
        (stored,) = reader.index("triton", ["main"])
        manifest = pack.inspect(reader.fetch(stored), stored.address)
        said = pack.statement(entry.address, manifest.digest, manifest.size)
        assert keys.verify(by_us.public, manifest.signature, said)
        assert manifest.signer == pack.key_name(by_us.public)
        reader.vet(stored, manifest)

    def test_size_and_time_are_told(self, place: Place) -> None:
        backend, entry = place.open(), make_entry(1)
        offer(backend, entry)
        (stored,) = backend.everything()
        assert stored.size == len(pack.encode(entry))
        assert stored.published > 1_600_000_000
        assert stored.trusted

    def test_what_jobs_report_is_added_up(self, place: Place) -> None:
        today = int(time.time() // 86400)
        place.open().report([Stat(today, "main", "triton", 3, 1, 1000, 2500)])
        place.open().report([Stat(today, "main", "triton", 4, 0, 500, 500), Stat(today, "main", "jax", 1, 0, 9, 0)])
        found = place.open().reports()
        assert set(found) == {Stat(today, "main", "triton", 7, 1, 1500, 3000), Stat(today, "main", "jax", 1, 0, 9, 0)}

    def test_use_is_remembered(self, place: Place) -> None:
        backend = place.open()
        addresses = [make_entry(number).address for number in range(3)]
        backend.note_use(addresses[:2])
        backend.note_use(addresses[1:])
        assert set(place.open().last_uses()) == set(addresses)
