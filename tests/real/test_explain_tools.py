"""Real Numba and JAX meet damaged caches of their own, and `ondol explain` tells what failed from what was survived."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from people import ROOT, Program

pytestmark = pytest.mark.real

NUMBA = """
import numba

@numba.njit(cache=True)
def add(x):
    return x + 1

print(add(1))
"""
JAX = """
import jax

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
print(jax.jit(lambda x: x * 2 + 1)(3.0))
"""


class Tool:
    def __init__(self, program: Program, folder: Path, source: str) -> None:
        self.program, self.folder, self.cache = program, folder, folder / "cache"
        self.python = ROOT / ".build" / "tools" / "bin" / "python"
        assert self.python.exists(), "make test installs it; for pytest alone: make .build/tools"
        (folder / "program.py").write_text(source)
        assert self.run().returncode == 0

    def run(self) -> subprocess.CompletedProcess[str]:
        env = {"NUMBA_CACHE_DIR": str(self.cache), "JAX_COMPILATION_CACHE_DIR": str(self.cache), "PYTHONPATH": ""}
        return self.program.run([str(self.python), "program.py"], cwd=self.folder, env=env)

    def cut(self, pattern: str, size: int) -> None:
        found = list(self.cache.rglob(pattern))
        assert found
        for path in found:
            os.truncate(path, size)

    def explain(self) -> tuple[int, dict[str, Any]]:
        """(the status of the program on its damaged cache, what is said of its output)"""
        done = self.run()
        said = self.program.ondol("explain", "--json", input=done.stdout + done.stderr)
        return done.returncode, json.loads(said.stdout)


@pytest.fixture(scope="module")
def numba(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """With a cache that is whole, for tests to copy."""
    return Tool(program, tmp_path_factory.mktemp("numba"), NUMBA)


@pytest.mark.parametrize(
    ("pattern", "size", "name"),
    [("*.nbi", 0, "numba-torn-index"), ("*.nbi", 40, "numba-torn-entry"), ("*.nbc", 100, "numba-torn-entry")],
)
def test_torn_cache_of_numba_is_named(numba: Tool, tmp_path: Path, pattern: str, size: int, name: str) -> None:
    tool = copy.copy(numba)
    tool.cache = shutil.copytree(numba.cache, tmp_path / "cache")
    tool.cut(pattern, size)
    status, said = tool.explain()
    assert status == 1
    assert [fault["id"] for fault in said["faults"]] == [name]


def test_entry_that_jax_survives_is_not_given_as_a_cause(program: Program, tmp_path: Path) -> None:
    tool = Tool(program, tmp_path, JAX)
    tool.cut("*-cache", 50)
    status, said = tool.explain()
    assert status == 0
    assert said["faults"] == []
    assert [fault["id"] for fault in said["warnings"]] == ["jax-bad-entry"]
