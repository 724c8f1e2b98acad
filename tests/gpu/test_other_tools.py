"""On a real GPU: what CuPy, the driver and Triton's autotuning keep is shared, also with other users."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from people import Program, needs_root
from real.tool_lives import UID, Real, Run, Warmed

pytestmark = pytest.mark.real


def warmed(program: Program, public: Path, tool: str, script: str) -> Warmed:
    return Warmed(Real(program, sys.executable, [], tool, script), public / f"store-of-{tool}")


@pytest.mark.skipif(not importlib.util.find_spec("cupy"), reason="cupy is not installed")
def test_cupy_kernels_are_neither_compiled_again_nor_refused(program: Program, public: Path, tmp_path: Path) -> None:
    cupy = warmed(program, public, "cupy", "cupy_program.py")
    cupy.stays_warm()
    cupy.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
@pytest.mark.skipif(not importlib.util.find_spec("cupy"), reason="cupy is not installed")
def test_cupy_kernels_of_another_user_are_used(program: Program, public: Path) -> None:
    """Without Ondol: CuPy's files are for their owner alone, and it does not ask before it opens them."""
    real = Real(program, sys.executable, [], "cupy", "cupy_program.py")
    cache = public / "cupy-of-root"
    assert real.plain(cache).made > 0
    naked = real.plain(cache, uid=UID)
    assert naked.status == 1
    assert "PermissionError" in naked.stderr
    Warmed(real, public / "store-of-cupy-users").stays_warm(uid=UID)


def test_ptx_is_not_compiled_again_by_the_driver(program: Program, public: Path, tmp_path: Path) -> None:
    driver = warmed(program, public, "cuda-driver", "ptx_program.py")
    assert driver.cold.made == 3
    driver.stays_warm()
    driver.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
def test_ptx_is_not_compiled_again_for_another_user(program: Program, public: Path) -> None:
    """Without Ondol: the driver makes its directories for their owner alone."""
    real = Real(program, sys.executable, [], "cuda-driver", "ptx_program.py")
    cache = public / "driver-of-root"
    assert real.plain(cache).made == 3
    cache.chmod(0o755)
    assert real.plain(cache, uid=UID).reused == 0
    Warmed(real, public / "store-of-driver-users").stays_warm(uid=UID)


def test_autotuning_does_not_measure_again(program: Program, store_path: Path) -> None:
    real = Real(program, sys.executable, [], "triton", "gpu_tuned_kernel.py")

    def job(*options: str) -> Run:
        run = real.job(store_path, options=options)
        assert (run.status, run.said["right"]) == (0, True), run
        return run

    cold = job("--triton-autotune")
    assert cold.made == 1
    warm = job("--triton-autotune")
    assert (warm.made, warm.said["answer"]) == (0, cold.said["answer"]), warm
    frozen = job("--triton-autotune", "--frozen", "--require-warm")
    assert frozen.made == 1
    assert "triton: autotuning results are neither taken nor given" in frozen.stderr
    assert job().made == 1  # a program that does not keep them, on its own
