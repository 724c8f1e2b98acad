"""Real JAX on the CPU: programs that one job compiled are reused by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from people import Program, needs_root
from real.warming import UID, Real, stays_warm, survives_damage, warms

pytestmark = pytest.mark.real

#: JAX itself keeps only what took a second to compile.
EVERYTHING = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@pytest.fixture
def jax(program: Program, tools: tuple[str, list[str]]) -> Real:
    return Real(program, *tools, "jax", "jax_program.py")


def test_damaged_entry_fails_a_job(jax: Real, store: Path) -> None:
    cold = warms(jax, store, **EVERYTHING)
    survives_damage(jax, store, cold, **EVERYTHING)


@needs_root
@pytest.mark.root
def test_program_compiled_again_for_another_user(jax: Real, store: Path) -> None:
    cold = warms(jax, store, uid=UID, **EVERYTHING)
    stays_warm(jax, store, cold, uid=UID + 1, **EVERYTHING)


def test_moved_cache_misses_without_ondol(jax: Real, tmp_path: Path) -> None:
    """With JAX's own defaults the key of an executable holds the cache's path; what Ondol sets takes it out."""
    theirs = {**EVERYTHING, "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "xla_gpu_per_fusion_autotune_cache_dir"}
    first = tmp_path / "first"
    assert jax.plain(first, **theirs).reused == 0
    first.rename(tmp_path / "moved")
    moved = jax.plain(tmp_path / "moved", **theirs)
    assert (moved.status, moved.reused) == (0, 0), moved
