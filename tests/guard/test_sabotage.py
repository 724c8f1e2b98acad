"""Each promise of the guard is broken on purpose, to show that the check of it would notice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ondol.guard import healing, lease, lock_parts
from ondol.guard.healer import BadEntry
from ondol.guard.lock import CacheLock
from ondol.guard.uv import Uv
from ondol.host import files
from uv_caches import a_lock, make_uv_cache

Sabotage = Callable[[pytest.MonkeyPatch], None]


def turns_violations(folder: Path) -> list[str]:
    """Two that want one cache; two that want two."""
    first = a_lock(folder / "one")
    second, elsewhere = a_lock(folder / "one", wait=0.0), a_lock(folder / "two", wait=0.0)
    found = ["two are inside"] if second.standing else []
    found += [] if elsewhere.standing else ["two caches wait for each other"]
    for lock in (first, second, elsewhere):
        lock.release()
    return found


def lease_violations(folder: Path) -> list[str]:
    first, second = (lease.Lease(str(folder / "lock")) for _ in range(2))
    judged: list[bool] = []
    second._is_over = lambda number: judged.append(first.attempt()) or True  # type: ignore[method-assign, func-returns-value]
    (folder / "lock.000001").write_bytes(b"free 000000000000\n")
    held = [second.attempt(), *judged]
    for one in (first, second):
        if one._fd >= 0:
            one.release()
    return ["two hold the lease"] if held == [True, True] else []


def healing_violations(folder: Path) -> list[str]:
    """A cache with one bad entry, healed: that is gone, the others are what they were."""
    cache = make_uv_cache(folder)
    (cache / "archive-v0" / "id-of-alpha" / "alpha" / "data.bin").unlink()
    healthy = {path: path.lstat().st_ino for path in cache.rglob("*") if "alpha" not in str(path.relative_to(cache))}
    lock = a_lock(cache)
    healing.heal("uv", lock, lambda *_: None)
    lock.release()
    found = ["the bad entry is still there"] if (cache / "archive-v0" / "id-of-alpha").exists() else []
    found += ["something still leads to it"] if any(os.path.lexists(path) for path in _leading(cache)) else []
    lost = [path for path, inode in healthy.items() if not os.path.lexists(path) or path.lstat().st_ino != inode]
    return found + (["a healthy neighbour is gone"] if lost else [])


def _leading(cache: Path) -> list[Path]:
    folder = cache / "wheels-v7" / "index" / "an-index" / "alpha"
    return [folder / "1.0-py3-none-any", folder / "1.0-py3-none-any.http"]


def no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lock_parts, "flock", lambda _fd, _shared: True)


def one_lock_for_all(patch: pytest.MonkeyPatch) -> None:
    """Keyed by the user, as in the fix that was merged."""
    find_out = CacheLock._find_out

    def same_for_all(self: CacheLock) -> None:
        find_out(self)
        self.cache = os.path.dirname(self.cache)

    patch.setattr(CacheLock, "_find_out", same_for_all)


def lease_that_replaces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "CREATE", files.CREATE & ~os.O_EXCL)


def no_evidence(patch: pytest.MonkeyPatch) -> None:
    """Every archive is called bad."""

    def everything(_self: Uv, cache: str, _progress: object) -> Iterator[BadEntry]:
        for name in os.listdir(f"{cache}/archive-v0"):
            yield BadEntry(f"{cache}/archive-v0/{name}", "no reason")

    patch.setattr(Uv, "examine", everything)


def whole_cache(patch: pytest.MonkeyPatch) -> None:
    """`uv cache clean`, as in the fix that was merged."""
    patch.setattr(healing, "_examine", lambda healer, cache, _progress: healing._everything(cache, healer))


def blind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Uv, "examine", lambda _self, _cache, _progress: iter(()))


def names_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("ondol.guard.uv._Names.to", lambda _self, _archive: ())


CASES: dict[str, tuple[Sabotage, Callable[[Path], list[str]], str]] = {
    "no lock": (no_lock, turns_violations, "two are inside"),
    "one lock for all caches": (one_lock_for_all, turns_violations, "two caches wait for each other"),
    "a lease that replaces": (lease_that_replaces, lease_violations, "two hold the lease"),
    "no evidence": (no_evidence, healing_violations, "a healthy neighbour is gone"),
    "the whole cache": (whole_cache, healing_violations, "a healthy neighbour is gone"),
    "nothing is looked at": (blind, healing_violations, "the bad entry is still there"),
    "what leads there stays": (names_stay, healing_violations, "something still leads to it"),
}


@pytest.mark.parametrize("case", CASES)
def test_sabotage_is_found(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is silent on the code as it is, and speaks when its promise is broken."""
    sabotage, check, word = CASES[case]
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()

    assert check(tmp_path / "whole") == []

    sabotage(monkeypatch)

    assert word in check(tmp_path / "broken")
