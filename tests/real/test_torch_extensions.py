"""Real PyTorch, ninja and compiler: extensions are built once for all rooms and users, and again when they must be.

That nothing was compiled is the compiler's own word: a wrapper that counts. That ninja agrees is ninja's.
"""

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
SOURCE = """
#include <Python.h>
#include "answer.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "filed", "", -1, methods};
PyMODINIT_FUNC PyInit_filed() { return PyModule_Create(&module); }
"""
COUNTING = '#!/bin/sh\ncase "$*" in *" -o "*) echo run >> {count};; esac\nexec c++ "$@"\n'
KILLING = '#!/bin/sh\ncase "$*" in *" -c "*) kill -9 $BUILDER;; esac\nexec c++ "$@"\n'
WHY_NOT = fixed_place.why_not({"x": "/tmp"})
pytestmark = [
    pytest.mark.real,
    pytest.mark.warm,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"fixed paths are not possible here: {WHY_NOT}"),
]


class Torch:
    """A project with an extension, and a store that has it."""

    def __init__(self, program: Program, place: Path) -> None:
        assert (TOOLS / "python").exists(), "make test installs it; for pytest alone: make .build/tools"
        self.program, self.place = program, place
        self.store = place / "store"
        self.source, self.header = place / "checkout" / "filed.cpp", place / "checkout" / "answer.h"
        self.source.parent.mkdir(parents=True)
        self.source.write_text(SOURCE)
        self.header.write_text("#define ANSWER 1\n")
        self.count = place / "count"
        self.count.touch()
        self.count.chmod(0o666)
        self.compilers = {"counting": COUNTING.format(count=self.count), "killing": KILLING}
        for name, text in self.compilers.items():
            (place / name).write_text(text)
            (place / name).chmod(0o755)

    def env(self, compiler: str = "counting", **more: str) -> dict[str, str]:
        path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
        # PyTorch puts ccache before any compiler as soon as it is installed: it would hide what we count.
        return {"PATH": path, "CXX": str(self.place / compiler), "CCACHE_DISABLE": "1", **more}

    def command(self, *words: str) -> list[str]:
        return [str(TOOLS / "python"), str(self.program.programs / "torch_extension.py"), str(self.source), *words]

    def naked(self, cache: Path, compiler: str, *words: str) -> subprocess.CompletedProcess[str]:
        env = self.env(compiler, TORCH_EXTENSIONS_DIR=str(cache))
        return self.program.run(self.command(*words), env=env)

    def job(
        self, *options: str, uid: int | None = None, before: tuple[str, ...] = (), compiler: str = "counting"
    ) -> subprocess.CompletedProcess[str]:
        ondol = [self.program.python, "-m", "ondol", "run", "--store", str(self.store), "--tools", "torch-extensions"]
        command = [*before, *ondol, *options, "--", *self.command()]
        return self.program.run(command, uid=uid, env=self.env(compiler))

    def compiled(self) -> int:
        """How often since the last time it was asked."""
        count = len(self.count.read_text().splitlines())
        self.count.write_text("")
        return count


@pytest.fixture(scope="module")
def torch(program: Program, public: Path) -> Iterator[Torch]:
    made = Torch(program, public / "torch-extensions")
    assert program.ondol("store", "init", str(made.store), "--writers", str(UID)).returncode == 0
    cold = made.job()
    assert cold.returncode == 0, cold.stderr
    assert "answers 1 7 from /srv/ondol/torch-extensions/" in cold.stdout
    assert "2 new, 2 published" in cold.stderr
    assert made.compiled() == 4  # two objects, two libraries
    yield made
    shutil.rmtree(made.place, ignore_errors=True)


def assert_warm(torch: Torch, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert "answers 1 7 from /srv/ondol/torch-extensions/" in done.stdout
    assert done.stdout.count("ninja: no work to do.") == 2
    assert "2 filled, 2 used, 0 new" in done.stderr
    assert torch.compiled() == 0


@needs_root
@pytest.mark.root
def test_extensions_are_not_built_again_by_another_user(torch: Torch) -> None:
    """In a user namespace of its own; root's files look like nobody's there, and are read all the same."""
    if not torch.program.works_for_others(str(TOOLS / "python")):
        pytest.skip("other users cannot execute .build/tools where this checkout is")
    assert_warm(torch, torch.job("--require-warm", uid=UID))


def test_changed_header_is_built_and_what_was_built_before_is_not_built_again(torch: Torch) -> None:
    """In another room each. Back again, the header's time is another one, its contents are the old ones."""
    torch.header.write_text("#define ANSWER 2\n")
    try:
        changed = torch.job("--publish", "never")
    finally:
        torch.header.write_text("#define ANSWER 1\n")
    assert "answers 2 7" in changed.stdout, changed.stderr
    assert "1 filled, 1 used, 1 new" in changed.stderr
    assert f"made from another {torch.header} than the one here" in changed.stderr
    assert torch.compiled() == 2
    assert_warm(torch, torch.job("--require-warm"))


def test_truncated_packs_do_not_fail_the_job(torch: Torch, public: Path) -> None:
    whole = torch.store
    torch.store = public / "torch-extensions-cut"
    shutil.copytree(whole, torch.store)
    try:
        for number, pack in enumerate(sorted(torch.store.rglob("*.pack"))):
            pack.write_bytes(pack.read_bytes()[: -1 if number else 100])
        job = torch.job()
    finally:
        shutil.rmtree(torch.store)
        torch.store = whole
    assert "answers 1 7" in job.stdout, job.stderr
    assert "2 bad torch-extensions pack(s)" in job.stderr
    assert torch.compiled() == 4


def test_forbidden_namespaces_do_not_break_it(torch: Torch) -> None:
    """Private and cold, said once; the build is the user's own, in the room, and nothing of it is published."""
    forbidden = (
        *("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"),
        "echo 0 > /proc/sys/user/max_user_namespaces"
        ' && exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all "$@"',
        "sh",
    )
    packs = sorted(torch.store.rglob("*.pack"))
    job = torch.job(before=forbidden)
    assert job.returncode == 0, job.stderr
    assert "answers 1 7 from" in job.stdout
    assert "ondol-room-" in job.stdout
    assert job.stderr.count("private and cold") == 1
    assert torch.compiled() == 4
    assert sorted(torch.store.rglob("*.pack")) == packs


def test_orphan_lock_does_not_hang_the_next_job(torch: Torch, tmp_path: Path) -> None:
    """Without Ondol: one build killed, and every later process waits for its lock for ever (pytorch#189245)."""
    cache = tmp_path / "shared"
    assert torch.naked(cache, "killing").returncode == -9
    assert (cache / "filed" / "lock").exists()
    hung = torch.naked(cache, "counting", "3")
    assert hung.returncode == 1
    assert "file_baton.py" in hung.stderr
    assert torch.compiled() == 0

    whole = torch.store
    torch.store = tmp_path / "store"
    assert torch.program.ondol("store", "init", str(torch.store)).returncode == 0
    try:
        killed = torch.job("--publish", "auto", compiler="killing")
        assert killed.returncode == 137
        assert list(torch.store.rglob("*.pack")) == []
        after = torch.job()
    finally:
        torch.store = whole
    assert "answers 1 7" in after.stdout, after.stderr
    assert torch.compiled() == 4
