"""Real JAX on the CPU: programs that one job compiled are reused by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from people import Program, needs_root
from real.tool_lives import UID, Real, Warmed

pytestmark = pytest.mark.real

#: JAX itself keeps only what took a second to compile.
EVERYTHING = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@pytest.fixture(scope="module")
def jax(program: Program, tools: tuple[str, list[str]], public: Path) -> Warmed:
    return Warmed(Real(program, *tools, "jax", "jax_program.py"), public / "store-of-jax", **EVERYTHING)


def test_damaged_entry_fails_no_job(jax: Warmed, tmp_path: Path) -> None:
    jax.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
def test_program_is_not_compiled_again_for_another_user(jax: Warmed) -> None:
    jax.stays_warm(uid=UID)


def test_moved_cache_misses_without_ondol(jax: Warmed, tmp_path: Path) -> None:
    """With JAX's own defaults the key of an executable holds the cache's path; what Ondol sets takes it out."""
    theirs: dict[str, Any] = {
        **EVERYTHING,
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "xla_gpu_per_fusion_autotune_cache_dir",
    }
    first = tmp_path / "first"
    assert jax.real.plain(first, **theirs).reused == 0
    first.rename(tmp_path / "moved")
    moved = jax.real.plain(tmp_path / "moved", **theirs)
    assert (moved.status, moved.reused) == (0, 0), moved
