"""On a real GPU: kernels that come from the store are launched and compute the right results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from people import ROOT

pytestmark = pytest.mark.real


def run(checkout: Path, store: Path) -> tuple[dict[str, Any], str]:
    checkout.mkdir()
    shutil.copy(ROOT / "tests" / "programs" / "gpu_kernels.py", checkout)
    command = [sys.executable, "-m", "ondol", "run", "--store", str(store), "--", sys.executable, "gpu_kernels.py"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def test_kernels_from_the_store_compute_the_right_results(store_path: Path, tmp_path: Path) -> None:
    """Cold, then warm in another checkout: nothing compiled, helper libraries loaded from the room, results checked."""
    cold, _ = run(tmp_path / "one", store_path)
    assert cold["hits"] == 0
    assert cold["compiled"] >= 4
    warm, said = run(tmp_path / "two", store_path)
    assert (warm["compiled"], warm["hits"]) == (0, cold["compiled"])
    assert "0 new" in said
