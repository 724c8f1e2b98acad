"""Rotten disks: any byte of any pack changed, any length cut, anything appended. Always a miss, never the bad bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import job
from faults.forging import accepted, forge, manifest
from faults.rotting import corruption_violations
from making import key_of, make_entry
from ondol.store import marker, pack

pytestmark = pytest.mark.fault


def test_any_flipped_byte_makes_a_bad_pack() -> None:
    """Every single byte of a pack is covered, in each of three ways to go wrong."""
    assert corruption_violations(pack.encode(make_entry(1))) == []


def test_any_truncation_makes_a_bad_pack() -> None:
    """A pack cut off at any length is bad, the empty one included."""
    good = pack.encode(make_entry(1))

    assert [length for length in range(len(good)) if accepted(good[:length])] == []


@pytest.mark.parametrize("more", [b"\0", b"x" * 100, bytes(5000)], ids=["a byte", "some", "a block"])
def test_anything_appended_makes_a_bad_pack(more: bytes) -> None:
    """A pack that grew is bad, and so are two packs in one file."""
    good = pack.encode(make_entry(1))

    assert accepted(good + more) == ""
    assert accepted(good + good) == ""


@pytest.fixture
def warm_store(fast_place: Path) -> Path:
    """A store with three entries from a real job."""
    marker.create(str(fast_place / "store"), marker.Writers(), shared=True)
    job.run(fast_place, job.command(fast_place, (1, 2, 3)))
    return fast_place


def _pack_path(place: Path, number: int) -> Path:
    return next((place / "store" / "lanes").glob(f"*/main/triton/*/{key_of(number)}.pack"))


def _replace_pack(place: Path, number: int, data: bytes) -> None:
    path = _pack_path(place, number)
    path.chmod(0o600)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "bad",
    [b"", b"ONDOLPK\0", bytes(4096), forge(manifest(seconds=float("nan"))), pack.encode(make_entry(9))],
    ids=["empty", "torn", "zeros", "hostile", "of another key"],
)
def test_bad_pack_in_a_job_is_a_miss_set_aside_and_reported(warm_store: Path, bad: bytes) -> None:
    """The job compiles what the bad pack should have held, says so, and the next job is warm again."""
    _replace_pack(warm_store, 2, bad)

    report = job.run(warm_store, job.command(warm_store, (1, 2, 3)))
    tool = report["tools"]["triton"]

    assert report["status"] == 0
    assert (tool["filled"], tool["bad_packs"], tool["new"], tool["published"]) == (2, 1, 1, 1)
    assert key_of(2) in tool["bad_reasons"][0]
    assert ["1 set aside" in warning for warning in report["warnings"]] == [True]
    (aside,) = (warm_store / "store" / "lanes").glob("*/quarantine/*.pack")
    assert aside.read_bytes() == bad

    later = job.run(warm_store, job.command(warm_store, (1, 2, 3)))

    assert (later["tools"]["triton"]["filled"], later["tools"]["triton"]["new"], later["warnings"]) == (3, 0, [])


def test_every_rotten_pack_is_a_miss_and_never_unpacked(warm_store: Path) -> None:
    """With all packs rotten the job is cold, the room holds nothing of them, and the status is the command's."""
    for number in (1, 2, 3):
        data = bytearray(_pack_path(warm_store, number).read_bytes())
        data[-40] ^= 0x80
        _replace_pack(warm_store, number, bytes(data))

    report = job.run(warm_store, ["/bin/sh", "-c", 'test -z "$(ls "$TRITON_CACHE_DIR")"; exit $((7 + $?))'])

    assert report["status"] == 7
    assert report["tools"]["triton"]["bad_packs"] == 3
