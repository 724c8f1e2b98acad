"""Real TVM FFI: a C++ module is built once for all rooms and users. The compiler counts itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.host import fixed_place
from people import ROOT, Program, needs_root

UID = 1000
TOOLS = ROOT / ".build" / "tools" / "bin"
PROGRAM = """
import tvm_ffi.cpp
module = tvm_ffi.cpp.load_inline("hello", cpp_sources="int add_one(int x) { return x + 1; }", functions=["add_one"])
print("answer", module.add_one(41))
"""
COUNTING = '#!/bin/sh\necho run >> {count}\nexec c++ "$@"\n'
WHY_NOT = fixed_place.why_not({"x": "/tmp"})
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"fixed paths are not possible here: {WHY_NOT}"),
]


@pytest.fixture
def place(program: Program, public: Path) -> Iterator[Path]:
    path = public / "tvm-ffi"
    path.mkdir()
    (path / "hello.py").write_text(PROGRAM)
    (path / "count").touch()
    (path / "count").chmod(0o666)
    (path / "cxx").write_text(COUNTING.format(count=path / "count"))
    (path / "cxx").chmod(0o755)
    assert program.ondol("store", "init", str(path / "store"), "--writers", str(UID)).returncode == 0
    yield path
    shutil.rmtree(path, ignore_errors=True)


def job(program: Program, place: Path, uid: int | None = None) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}", "CXX": str(place / "cxx"), "CCACHE_DISABLE": "1"}
    options = ["run", "--store", str(place / "store"), "--tools", "tvm-ffi"]
    done = program.ondol(*options, "--", str(TOOLS / "python"), str(place / "hello.py"), uid=uid, env=env)
    assert "answer 42" in done.stdout, done.stderr
    return done


@needs_root
@pytest.mark.root
def test_module_is_not_built_again_in_another_room_or_by_another_user(program: Program, place: Path) -> None:
    assert "1 new, 1 published" in job(program, place).stderr
    compiled = (place / "count").read_text()
    assert compiled.count("run") == 2
    assert "1 filled, 1 used, 0 new" in job(program, place).stderr
    assert "1 filled, 1 used, 0 new" in job(program, place, uid=UID).stderr
    assert (place / "count").read_text() == compiled
