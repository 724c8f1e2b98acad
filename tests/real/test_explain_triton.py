"""Real Triton dies from real faults of its cache, in real pytest runs, and `ondol explain` names the fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from people import ROOT, Program, needs_root

pytestmark = pytest.mark.real

UID = 1000
#: Without the collector: where Python 3.11.2 parses a source for a traceback and something is finalised meanwhile, such
#: as Triton's half-made kernel, the parser gives up with a SystemError (cpython#106905), and pytest with it. And without
#: Triton's own key, for which each process reads all of Triton.
SUITE = """
import gc
import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

gc.disable()
cache.triton_key = lambda: triton.__version__


@triton.jit
def scale(x, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(out + places, tl.load(x + places, mask=inside) * 2, mask=inside)


@pytest.mark.parametrize("block", [256, 512])
def test_scale(block):
    signature = {"x": "*fp32", "out": "*fp32", "count": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=scale, signature=signature, constexprs={"BLOCK": block})
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def test_of_its_own():
    assert 1 == 2
"""


class Suite:
    """The suite above on a cache of its own, in a place that everybody can reach."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program, self.folder, self.cache = program, folder, folder / "cache"
        folder.chmod(0o755)
        (folder / "test_kernels.py").write_text(SUITE)
        (folder / "out").mkdir()
        (folder / "out").chmod(0o777)
        (folder / "older").symlink_to(ROOT / ".build" / "triton36")

    def fill(self, *, older: bool = False) -> None:
        assert "2 passed" in self.run(older=older).stdout

    def take(self, other: Suite) -> None:
        """A copy of its cache, whose entries name their files by their whole paths."""
        shutil.copytree(other.cache, self.cache)
        for group in self.kernels("__grp__*"):
            group.write_text(group.read_text().replace(str(other.cache), str(self.cache)))

    def run(self, *options: str, uid: int | None = None, older: bool = False) -> subprocess.CompletedProcess[str]:
        path = [str(self.folder / "older"), *self.program.path] if older else self.program.path
        env = {"TRITON_CACHE_DIR": str(self.cache), "PYTHONPATH": os.pathsep.join(path), "HOME": str(self.folder)}
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a second less for each run
        plain = ["-p", "no:cacheprovider", "-p", "no:asyncio", "-c", "/dev/null", "--rootdir", str(self.folder)]
        command = [self.program.python, "-m", "pytest", *plain, *options, str(self.folder / "test_kernels.py")]
        return self.program.run(command, uid=uid, cwd=self.folder, env=env)

    def explain(self, **how: Any) -> dict[str, Any]:
        """What `ondol explain` says of a run that fails, from its log and from its JUnit file."""
        failed = self.run("--junitxml", str(self.folder / "out" / "junit.xml"), **how)
        assert failed.returncode == 1, failed.stdout
        said = [self._ask("-", failed.stdout), self._ask(str(self.folder / "out" / "junit.xml"))]
        short = [[(fault["id"], len(fault["tests"])) for fault in one["faults"]] for one in said]
        assert short[0] == short[1], failed.stdout
        return said[0]

    def _ask(self, log: str, text: str | None = None) -> dict[str, Any]:
        done = self.program.ondol("explain", log, "--json", input=text)
        return dict(json.loads(done.stdout))

    def entries(self) -> list[Path]:
        return [path for path in self.cache.iterdir() if path.is_dir()]

    def kernels(self, name: str) -> list[Path]:
        return sorted(self.cache.glob(f"*/{name}"))


@pytest.fixture(scope="module")
def filled(program: Program, public: Path) -> Suite:
    """Filled by root."""
    made = Suite(program, Path(tempfile.mkdtemp(dir=public)))
    made.fill()
    return made


@pytest.fixture
def empty(program: Program, public: Path) -> Suite:
    """It has no cache yet."""
    return Suite(program, Path(tempfile.mkdtemp(dir=public)))


@pytest.fixture
def suite(filled: Suite, empty: Suite) -> Suite:
    empty.take(filled)
    return empty


def check(said: dict[str, Any], name: str) -> None:
    assert [(fault["id"], len(fault["tests"])) for fault in said["faults"]] == [(name, 2)], said
    assert said["failed"] == 3
    assert [test.rpartition("::")[2] for test in said["unexplained"]] == ["test_of_its_own"]


@needs_root
@pytest.mark.root
def test_foreign_entry_is_named(suite: Suite) -> None:
    """Seed 000."""
    suite.cache.chmod(0o777)
    for group in suite.kernels("__grp__*"):
        group.unlink()
    said = suite.explain(uid=UID)
    check(said, "triton-foreign-key-dir")
    assert "ondol run" in said["faults"][0]["cure"]


@needs_root
@pytest.mark.root
def test_closed_entry_is_named(suite: Suite) -> None:
    """Seed 000 again: whole, but made under umask 077. Triton takes what it may not see for missing, and writes."""
    suite.cache.chmod(0o777)
    for entry in suite.entries():
        entry.chmod(0o700)
    said = suite.explain(uid=UID)
    check(said, "triton-foreign-key-dir")
    assert "closed to this user" in said["faults"][0]["meaning"]


@needs_root
@pytest.mark.root
def test_foreign_cache_is_named(empty: Suite) -> None:
    empty.cache.mkdir(mode=0o755)
    check(empty.explain(uid=UID), "triton-foreign-root")


@needs_root
@pytest.mark.root
def test_read_only_cache_is_named(suite: Suite) -> None:
    for group in suite.kernels("__grp__*"):
        group.unlink()
    subprocess.run(["mount", "--bind", suite.cache, suite.cache], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", suite.cache], check=True)
        check(suite.explain(), "triton-read-only")
    finally:
        subprocess.run(["umount", suite.cache], check=True)


@needs_root
@pytest.mark.root
def test_full_disk_is_not_blamed_on_the_cache(empty: Suite) -> None:
    empty.cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", empty.cache], check=True)
    try:
        check(empty.explain(), "disk-full")
    finally:
        subprocess.run(["umount", empty.cache], check=True)


def test_emptied_description_is_named(suite: Suite) -> None:
    """Only a hit reads it: where the copy is none, the suite compiles anew and passes."""
    for described in suite.kernels("scale.json"):
        described.write_bytes(b"")
    check(suite.explain(), "triton-torn-json")


@pytest.fixture(scope="module")
def filled_by_older(program: Program, public: Path) -> Suite:
    made = Suite(program, Path(tempfile.mkdtemp(dir=public)))
    made.fill(older=True)
    return made


@pytest.mark.parametrize(
    ("victim", "name"), [("scale.cubin", "triton-missing-file"), ("__grp__scale.json", "triton-torn-json")]
)
def test_fault_of_an_older_triton_is_named(filled_by_older: Suite, empty: Suite, victim: str, name: str) -> None:
    """3.6: a file of an entry is gone, as after cleaning by age; or the list of its files is empty."""
    empty.take(filled_by_older)
    for path in empty.kernels(victim):
        if victim.endswith(".cubin"):
            path.unlink()
        else:
            path.write_bytes(b"")
    check(empty.explain(older=True), name)


def test_bus_error_in_a_cut_off_helper_is_named(program: Program, public: Path) -> None:
    """The whole path of a launch, on a driver that does nothing."""
    driver, cache = public / "explained-driver", public / "explained-helper"
    driver.mkdir()
    build = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(driver / "libcuda.so.1")]
    subprocess.run([*build, str(ROOT / "tests" / "programs" / "fake_libcuda.c")], check=True)
    env = {"TRITON_LIBCUDA_PATH": str(driver), "LD_LIBRARY_PATH": str(driver), "TRITON_CACHE_DIR": str(cache)}
    launch = [program.python, "-X", "faulthandler", str(program.programs / "launch.py")]
    assert program.run(launch, env=env).returncode == 0
    (helper,) = cache.glob("*/cuda_utils*.so")
    os.truncate(helper, 20000)
    died = program.run(launch, env=env)
    assert died.returncode == -signal.SIGBUS, died.stderr
    said = json.loads(program.ondol("explain", "--json", input=died.stderr).stdout)
    assert [fault["id"] for fault in said["faults"]] == ["triton-torn-helper"], died.stderr
