"""On a real GPU: graphs that come from the store are launched, without compiling or tuning anything again."""

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


def run(checkout: Path, store: Path, *options: str) -> tuple[dict[str, Any], str]:
    checkout.mkdir()
    shutil.copy(ROOT / "tests" / "programs" / "compiled.py", checkout)
    program = [sys.executable, "compiled.py", "cuda"]
    command = [sys.executable, "-m", "ondol", "run", "--store", str(store), "--keep-room", *options, "--", *program]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("tools", ["auto", "inductor"])
def test_graph_is_neither_tuned_again_nor_bound_to_its_old_room(store_path: Path, tmp_path: Path, tools: str) -> None:
    """A graph names where its tuning results are: moved as it is, it is tuned again, into the room it was made in."""
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    options = ("--room-dir", str(rooms), "--tools", tools)
    cold, _ = run(tmp_path / "one", store_path, *options)
    assert (cold["hits"], cold["compiled"], cold["right"]) == (0, 1, True)
    assert cold["tuned"] > 0
    (first,) = rooms.iterdir()
    shutil.rmtree(first)
    warm, said = run(tmp_path / "two", store_path, *options)
    assert (warm["hits"], warm["compiled"], warm["traced"], warm["tuned"]) == (1, 0, 0, 0), said
    assert warm["right"]
    assert not first.exists()
