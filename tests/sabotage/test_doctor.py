"""What `ondol doctor --fix` must never do, and what it must see: broken on purpose, and noticed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor_runs import UID, machine
from handmade import write_triton_entry
from ondol.doctor import examine, gather, registry, repair, walk
from ondol.doctor.api import Repair
from ondol.doctor.walk import Bounds

pytestmark = pytest.mark.fault
Sabotage = Callable[[pytest.MonkeyPatch], None]


def swapped_file_violations(base: Path) -> list[str]:
    """Between looking and mending, another file takes the name."""
    seen, other = base / "seen", base / "other"
    for path in (seen, other):
        path.touch(mode=0o600)
    status = seen.stat()
    other.rename(seen)
    repair.carry_out([Repair("chmod", str(seen), status.st_dev, status.st_ino, add=0o066)])
    return [] if stat.S_IMODE(seen.stat().st_mode) == 0o600 else ["a file that nobody looked at was opened"]


def hard_link_violations(base: Path) -> list[str]:
    """A private file has got a second name in a shared directory."""
    secret, planted = base / "secret", base / "planted"
    secret.touch(mode=0o600)
    os.link(secret, planted)
    status = planted.stat()
    repair.carry_out([Repair("chmod", str(planted), status.st_dev, status.st_ino, add=0o060)])
    return [] if stat.S_IMODE(secret.stat().st_mode) == 0o600 else ["a private file was opened through its second name"]


def live_lock_violations(base: Path) -> list[str]:
    """The old lock is gone, and a live process has made its own under the same name, perhaps on the same inode."""
    lock = base / "lock"
    lock.touch()
    status = lock.stat()
    os.utime(lock, ns=(1, 1))
    wanted = Repair("remove", str(lock), status.st_dev, status.st_ino, written_ns=status.st_mtime_ns)
    repair.carry_out([wanted])
    return [] if lock.exists() else ["a lock that somebody holds was removed"]


def overlooked_leaf_violations(base: Path) -> list[str]:
    """Key directories of root in a cache of another user; asked as root, who could do everything there."""
    (base / "cache").mkdir(mode=0o777)
    write_triton_entry(base / "cache", 1)
    for item in [base / "cache", *(base / "cache").rglob("*")]:
        os.chown(item, UID, UID)
    write_triton_entry(base / "cache", 2).chmod(0o755)
    subjects = gather.subjects(machine(), [str(base / "cache")], Bounds())
    found = examine.examine(subjects, registry.choose(["owners"], []), lambda *_: None)[0].findings
    return [] if found else ["the foreign leaf is not seen"]


def no_identity(patch: pytest.MonkeyPatch) -> None:
    """Repairs go by name alone."""
    patch.setattr(repair, "_check", lambda _repair, _status: None)


def no_age(patch: pytest.MonkeyPatch) -> None:
    """A lock is known by its inode alone."""
    patch.setattr(repair, "_check_removable", repair._check)


def only_the_top(patch: pytest.MonkeyPatch) -> None:
    """The check that everybody has."""
    patch.setattr(walk._Walk, "_enter", lambda _self, _folder: None)


CASES: dict[str, tuple[Sabotage, Callable[[Path], list[str]], str]] = {
    "repairs by name, swapped file": (no_identity, swapped_file_violations, "nobody looked at"),
    "repairs by name, hard link": (no_identity, hard_link_violations, "second name"),
    "locks by inode, live lock": (no_age, live_lock_violations, "somebody holds"),
}


@pytest.mark.parametrize("case", CASES)
def test_sabotage_of_repairs_is_found(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage, check, words = CASES[case]
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    assert check(tmp_path / "whole") == []
    sabotage(monkeypatch)
    assert [text for text in check(tmp_path / "broken") if words in text] != []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_check_of_the_top_alone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    assert overlooked_leaf_violations(tmp_path / "whole") == []
    only_the_top(monkeypatch)
    assert overlooked_leaf_violations(tmp_path / "broken") != []
