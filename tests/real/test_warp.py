"""Real Warp: a module for the CPU and one built ahead for two GPUs, which share a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from people import Program, needs_root
from real.tool_lives import UID, Real, Warmed

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def warp(program: Program, tools: tuple[str, list[str]], public: Path) -> Warmed:
    return Warmed(Real(program, *tools, "warp", "warp_program.py"), public / "store-of-warp")


def test_damaged_entry_fails_no_job(warp: Warmed, tmp_path: Path) -> None:
    assert warp.cold.made == 3
    warp.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
def test_modules_are_not_compiled_again_for_another_user(warp: Warmed, public: Path) -> None:
    """Without Ondol a cache that only root can write ends another user's program at the first module that is not in it."""
    roots = public / "warp-of-root"
    roots.mkdir()
    naked = warp.real.plain(roots, uid=UID)
    assert naked.status == 1
    assert "Permission" in naked.stderr
    warp.stays_warm(uid=UID)
