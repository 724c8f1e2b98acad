"""Real TileLang without a GPU: kernels for the CPU, and autotuning results."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from people import Program, needs_root
from real.tool_lives import UID, Real, Run, Warmed

pytestmark = [pytest.mark.real, pytest.mark.warm]


@pytest.fixture(scope="module")
def tilelang(program: Program, tools: tuple[str, list[str]], public: Path) -> Warmed:
    return Warmed(Real(program, *tools, "tilelang", "tilelang_program.py"), public / "store-of-tilelang")


def test_damaged_entry_fails_no_job(tilelang: Warmed, tmp_path: Path) -> None:
    tilelang.survives_damage(tmp_path)


@needs_root
@pytest.mark.root
def test_kernels_are_not_compiled_again_for_another_user_in_another_checkout(tilelang: Warmed, public: Path) -> None:
    """Without Ondol a cache that is root's ends another user's program at import, before any kernel."""
    real = tilelang.real
    roots = public / "tilelang-of-root"
    roots.mkdir()
    naked = real.plain(roots, uid=UID)
    assert naked.status == 1
    assert "PermissionError" in naked.stderr
    here, elsewhere = real.script, public / "another-tilelang-checkout"
    elsewhere.mkdir()
    real.script = shutil.copy(here, str(elsewhere))
    tilelang.stays_warm(uid=UID)
    real.script = here


def test_autotuning_result_is_neither_measured_again_nor_torn(tilelang: Warmed, tmp_path: Path) -> None:
    """TileLang unpickles what it finds: a torn result ends the program. A whole one saves the measuring."""
    real, store = tilelang.real, tmp_path / "store"
    assert real.program.ondol("store", "init", str(store)).returncode == 0

    def job(*options: str) -> Run:
        program = real.program
        on_a_gpu = [program.python, str(program.programs / "on_a_gpu.py"), "nvidia-580.159.04", "NVIDIA H200"]
        ondol = [*on_a_gpu, "run", "--store", str(store), *options, "--", *real.command("tune")]
        return Run(program.run(ondol, env={"HOME": "/nonexistent"}))

    cold = job("--keep-room")
    assert cold.said["measured"] == 2
    warm = job()
    assert (warm.said["measured"], warm.said["answer"]) == (0, cold.said["answer"]), warm
    frozen = job("--frozen")
    assert frozen.said["measured"] == 2
    assert "tilelang: autotuning results are neither taken nor given" in frozen.stderr

    room = re.search(r"room kept: (\S+)", cold.stderr)
    assert room is not None
    cache = Path(room[1]) / "cache" / "tilelang"
    (pickled,) = cache.rglob("function.pkl")
    pickled.write_bytes(pickled.read_bytes()[:100])
    died = real.plain(cache, "tune")
    shutil.rmtree(room[1])
    assert died.status == 1
    assert "UnpicklingError" in died.stderr
