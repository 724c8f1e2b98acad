"""Every sabotage is found by the check of the promise that it breaks; without it the same check finds nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.crowds import crowd_violations, replacement_violations
from faults.disk_images import Ext4, image_violations
from faults.flipped_bytes import corruption_violations
from faults.operations import BY_NAME, packs
from faults.planted_files import planting_violations, stranger_violations
from faults.powerloss import power_loss_violations, publishing
from faults.reader_view import truth
from faults.strikes import kill_violations
from handmade import make_entry
from ondol.store import marker, pack
from sabotage import sabotages

pytestmark = pytest.mark.fault
Sabotage = Callable[[pytest.MonkeyPatch], None]


def _power_loss(base: Path) -> list[str]:
    marker.create(str(base / "live" / "store"), marker.Writers(), shared=True)
    entry = make_entry(1)
    return power_loss_violations(base, publishing(packs(entry)), truth([entry]))[1]


def _corruption(_base: Path) -> list[str]:
    return corruption_violations(pack.encode(make_entry(1)), masks=(0x01,))


def _in_store(check: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    def run(base: Path) -> list[str]:
        marker.create(str(base / "store"), marker.Writers(), shared=True)
        return check(base / "store")

    return run


def _kills(name: str) -> Callable[[Path], list[str]]:
    return lambda base: kill_violations(BY_NAME[name], base)


def _crowd(path: Path) -> list[str]:
    return crowd_violations(path, producers=60)


#: What is broken and how it shows: (sabotage, check, words that its finding must have).
CASES: dict[str, tuple[Sabotage, Callable[[Path], list[str]], str]] = {
    "no fsync of contents, power loss": (sabotages.no_sync_of_contents, _power_loss, "corrupt: "),
    "no fsync of names, power loss": (sabotages.no_sync_of_names, _power_loss, "acknowledged and is gone"),
    "no fsync of folders above, power loss": (sabotages.no_sync_above, _power_loss, "acknowledged and is gone"),
    "no verification, flipped bytes": (sabotages.no_verification, _corruption, "decode accepts it"),
    "rename for link, second producer": (
        sabotages.rename_instead_of_link,
        _in_store(replacement_violations),
        "after producer 2 a reader sees [2]",
    ),
    "rename for link, crowd": (sabotages.rename_instead_of_link, _in_store(_crowd), "and is now by"),
    "temporary files where readers look, kills": (
        sabotages.temporary_files_where_readers_look,
        _kills("publish_first"),
        "corrupt: torn pack",
    ),
    "no owner check, planted packs": (sabotages.no_owner_check, planting_violations, "others can write is read"),
    "witness first, kills": (sabotages.witness_first, _kills("fill_beside_others"), "looks finished and has no"),
}


@pytest.mark.parametrize("case", CASES)
def test_sabotage_is_found(case: str, fast_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is silent on the code as it is, and speaks when its promise is broken."""
    sabotage, check, words = CASES[case]
    for name in ("whole", "broken"):
        (fast_place / name).mkdir()

    assert check(fast_place / "whole") == []

    sabotage(monkeypatch)

    assert [text for text in check(fast_place / "broken") if words in text] != []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_one_lane_for_all_is_found(fast_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one directory for all writers, as raw shared caches have, a stranger's entry is read by everybody."""
    assert stranger_violations(_made(fast_place / "whole")) == []

    sabotages.one_lane_for_all(monkeypatch)

    assert stranger_violations(_made(fast_place / "broken")) == ["what the stranger published is read"]


@pytest.mark.root
def test_missing_fsync_is_found_on_a_real_disk(ext4: Ext4, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real ext4 image, packs that were named before they were synced come back empty."""
    sabotages.no_sync_of_contents(monkeypatch)

    found = image_violations(ext4, [make_entry(number) for number in range(30)])

    assert [text for text in found if "acknowledged and is gone" in text] != []


def _made(path: Path) -> Path:
    path.mkdir()
    path.parent.chmod(0o755)
    return path
