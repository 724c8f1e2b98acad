"""On a real GPU: kernels that come from the store are launched and compute the right results."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path

import pytest

from people import Job, Program

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not glob.glob("/dev/nvidia[0-9]*"), reason="no NVIDIA GPU on this machine"),
]


def test_kernels_from_the_store_compute_wrongly(program: Program, store_path: Path, tmp_path: Path) -> None:
    """Cold, then warm in another checkout: nothing compiled, helper libraries loaded from the room, results checked."""
    command = [program.python, "gpu_kernels.py"]
    answers = []
    for name in ("one", "two"):
        checkout = tmp_path / name
        checkout.mkdir()
        shutil.copy(program.programs / "gpu_kernels.py", checkout)
        done = program.ondol(
            "run", "--store", str(store_path), "--", *command, cwd=checkout, env={"HOME": str(tmp_path)}
        )
        answers.append(Job(done))
    cold, warm = answers
    assert (cold.status, cold.hits) == (0, 0), cold
    assert cold.compiled >= 4
    assert (warm.status, warm.compiled, warm.hits) == (0, 0, cold.compiled), warm
    assert "0 new" in warm.stderr
