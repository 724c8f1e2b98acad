"""Power loss at any moment of a publish: what was acknowledged is there, and no bad byte is ever accepted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.disk_images import Ext4, ext4, image_violations
from faults.operations import packs
from faults.powerloss import power_loss_violations, publishing
from faults.reader_view import truth
from handmade import make_entry
from ondol.store import marker
from ondol.store.entry import Address

__all__ = ["ext4"]
pytestmark = pytest.mark.fault
ONE, TWO, THREE = make_entry(1), make_entry(2), make_entry(3)
OTHER = make_entry(1, b"another producer's bytes")


def _make_store(base: Path) -> None:
    marker.create(str(base / "live" / "store"), marker.Writers(), shared=True)


def test_first_publish_survives_power_loss(fast_place: Path) -> None:
    """The first publish of a user makes its lane; acknowledged, both lane and pack are there for good."""
    _make_store(fast_place)

    states, found = power_loss_violations(fast_place, publishing(packs(ONE), packs(TWO)), truth([ONE, TWO]))

    assert found == []
    assert states > 20


def test_publish_of_several_survives_power_loss(fast_place: Path) -> None:
    """Several packs at once, of several scopes: each is whole or absent, and there when acknowledged."""
    _make_store(fast_place)
    elsewhere = make_entry(4, scope="pr-7")
    work = publishing(packs(ONE, TWO, elsewhere), packs(THREE))

    states, found = power_loss_violations(fast_place, work, truth([ONE, TWO, THREE, elsewhere]))

    assert found == []
    assert states > 100


def test_acknowledging_an_earlier_pack_means_that_it_is_durable(fast_place: Path) -> None:
    """Telling a second producer that the key is taken is a promise too."""
    _make_store(fast_place)

    _, found = power_loss_violations(fast_place, publishing(packs(ONE), packs(OTHER)), truth([ONE]))

    assert found == []


def test_publish_after_a_killed_one_survives_power_loss(fast_place: Path) -> None:
    """Folders that a killed writer made and never synced are synced by the next one that builds on them."""
    _make_store(fast_place)
    publish = publishing(packs(ONE))

    def work(place: Path, acknowledge: Callable[[list[Address]], None]) -> None:
        path = str(place / "store" / "lanes")
        for name in (f"{os.geteuid()}-{'0' * 32}", "main", "triton", "any"):
            path = os.path.join(path, name)
            os.mkdir(path, 0o755)
        publish(place, acknowledge)

    _, found = power_loss_violations(fast_place, work, truth([ONE]))

    assert found == []


def test_new_store_survives_power_loss(fast_place: Path) -> None:
    """A store that was made and published to is there after power loss, under a path that was made for it too."""

    def work(place: Path, acknowledge: Callable[[list[Address]], None]) -> None:
        marker.create(str(place / "store"), marker.Writers(), shared=True)
        publishing(packs(ONE))(place, acknowledge)

    _, found = power_loss_violations(fast_place, work, truth([ONE]))

    assert found == []


def test_replacing_a_rotten_pack_survives_power_loss(fast_place: Path) -> None:
    """A publish over a rotten earlier pack is acknowledged only when the good one is there to stay."""
    _make_store(fast_place)
    publishing(packs(OTHER))(fast_place / "live", lambda _addresses: None)
    (path,) = (fast_place / "live" / "store" / "lanes").glob("*/main/triton/any/*.pack")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-9])

    _, found = power_loss_violations(fast_place, publishing(packs(ONE)), truth([ONE]), rotten=True)

    assert found == []


@pytest.mark.root
def test_real_disk_image_taken_while_mounted_holds_every_acknowledged_pack(ext4: Ext4) -> None:
    """An ext4 image copied in the middle of things, as power loss leaves it, verifies and has all that was promised."""
    assert image_violations(ext4, [make_entry(number) for number in range(30)]) == []
