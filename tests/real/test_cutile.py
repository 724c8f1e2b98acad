"""cuTile's real cache code: one SQLite database, whose newest state is filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from people import Program, needs_root
from real.tool_lives import UID, Real, Warmed

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cutile(program: Program, tools: tuple[str, list[str]], public: Path) -> Warmed:
    return Warmed(Real(program, *tools, "cutile", "cutile_program.py"), public / "store-of-cutile")


def test_damaged_database_fails_no_job(cutile: Warmed, tmp_path: Path) -> None:
    cutile.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
def test_kernels_are_not_compiled_again_for_another_user(cutile: Warmed, public: Path) -> None:
    """Without Ondol a look-up in a database that one may not write fails, because the time of use is written into it."""
    cache = public / "cutile-of-root"
    assert cutile.real.plain(cache).made == 2
    naked = cutile.real.plain(cache, uid=UID)
    assert (naked.status, naked.made, naked.reused) == (0, 2, 0), naked
    cutile.stays_warm(uid=UID)


def test_kernel_added_later_is_published_too(cutile: Warmed, tmp_path: Path) -> None:
    real, store = cutile.real, cutile.copy(tmp_path / "store")
    added = real.job(store, "add", "softmax")
    assert (added.made, added.reused) == (1, 1), added
    warm = real.job(store, "add", "matmul", "softmax", options=("--require-warm",))
    assert (warm.status, warm.made, warm.reused) == (0, 0, 3), warm


def test_database_that_is_cut_off_is_not_adopted(cutile: Warmed, tmp_path: Path) -> None:
    """Without Ondol one torn page costs everybody the whole database: cuTile unlinks it. It is never taken in."""
    cache, store, program = tmp_path / "cache", tmp_path / "store", cutile.real.program
    assert program.ondol("store", "init", str(store)).returncode == 0
    assert cutile.real.plain(cache).made == 2
    data = (cache / "cache.db").read_bytes()
    (cache / "cache.db").write_bytes(data[: len(data) // 2])
    adopted = program.ondol("store", "adopt", str(cache), "--tool", "cutile", "--store", str(store))
    assert "torn: cache.db" in adopted.stdout
    assert "adopted 0 entries" in adopted.stdout
    lost = cutile.real.plain(cache, "softmax")
    assert (lost.status, lost.made) == (0, 1)
    assert cutile.real.plain(cache).reused < 2
