"""Rotten disks: any byte of any pack changed, any length cut, anything appended. Always a miss, never the bad bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults import job
from faults.flipped_bytes import corruption_violations
from faults.forged_packs import accepted, forge, manifest
from handmade import key_of, make_entry
from ondol.store import marker, pack
from people import Program

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


class TestAmongUsers:
    """As root, with users who may not write in each other's lanes."""

    pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")]
    ONE, TWO = 12001, 12002

    @pytest.fixture
    def shared(self, program: Program, public: Path, tmp_path: Path) -> Path:
        """A store with one entry of user ONE's."""
        path = public / tmp_path.name
        program.ondol("store", "init", str(path), "--writers", f"{self.ONE},{self.TWO}")
        assert program.job(path, "kernel", uid=self.ONE, options=("--publish=on-success",)).compiled == 1
        return path

    def _rot(self, store: Path) -> None:
        (path,) = store.glob(f"lanes/{self.ONE}-*/main/triton/*/*.pack")
        data = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(data[:-1])
        path.chmod(0o444)

    def test_rotten_pack_of_another_user_does_not_keep_its_key_cold(self, program: Program, shared: Path) -> None:
        """Who cannot set a bad pack aside publishes a good one beside it, and is warm from then on."""
        self._rot(shared)

        first = program.job(shared, "kernel", uid=self.TWO, options=("--publish=on-success",))
        second = program.job(shared, "kernel", uid=self.TWO, options=("--publish=on-success",))

        assert (first.status, first.compiled, second.status, second.compiled) == (0, 1, 0, 0)
        assert "0 set aside" in first.warnings[0]

    def test_root_that_sets_a_pack_aside_does_not_lock_its_owner_out(self, program: Program, shared: Path) -> None:
        """After root's `verify`, the owner can still set aside, publish again and clean up."""
        self._rot(shared)
        assert program.ondol("store", "verify", "--store", str(shared)).returncode == 1

        again = program.job(shared, "kernel", uid=self.ONE, options=("--publish=on-success",))
        self._rot(shared)
        healed = program.job(shared, "kernel", uid=self.ONE, options=("--publish=on-success",))
        warm = program.job(shared, "kernel", uid=self.ONE)

        assert (again.compiled, healed.compiled, warm.compiled) == (1, 1, 0)
        assert "1 set aside" in healed.warnings[0]
        assert {path.stat().st_uid for path in shared.glob("lanes/*/quarantine")} == {self.ONE}
