"""Real Triton, no GPU: the incidents that asked for Ondol, made to happen, and gone.

That a hit is a hit is Triton's own word: its compilation listener, printed by the programs.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from people import ROOT, Job, Program, needs_root

pytestmark = [pytest.mark.real, pytest.mark.warm]

#: Two kernels: enough to prove it, quick to compile.
KERNELS = "1"
UID = 1000


class Triton:
    """A Triton of one version, for any user; and what a first, cold job did with it."""

    def __init__(self, program: Program, extra: list[str], place: Path, version: str) -> None:
        self.program, self.extra, self.version = program, extra, version
        self.place = place / f"triton-{version}"
        self.kernels = self.checkout("checkout")

    def checkout(self, name: str) -> Path:
        (self.place / name).mkdir(parents=True)
        return Path(shutil.copy(ROOT / "examples" / "demo" / "kernels.py", self.place / name))

    def env(self, **more: str) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join([*self.extra, *self.program.path]), **more}

    def plain(self, cache: Path, uid: int | None = None) -> Job:
        """Without Ondol, on this cache directory."""
        return Job(self.program.run(self.command(), uid=uid, env=self.env(TRITON_CACHE_DIR=str(cache))))

    def job(self, store: Path, *options: str, kernels: Path | None = None, uid: int | None = None, **env: str) -> Job:
        arguments = ["run", "--store", str(store), *options, "--", *self.command(kernels)]
        return Job(self.program.ondol(*arguments, uid=uid, env=self.env(**env)))

    def command(self, kernels: Path | None = None) -> list[str]:
        return [self.program.python, str(kernels or self.kernels), KERNELS]

    @functools.cached_property
    def filled(self) -> tuple[Path, Job]:
        """A store, and the cold job that has filled it."""
        store = self.place / "filled"
        assert self.program.ondol("store", "init", str(store), "--writers", str(UID)).returncode == 0
        return store, self.job(store)

    @functools.cached_property
    def raw(self) -> Path:
        """A cache directory that plain Triton has filled, by whoever runs the tests."""
        cache = self.place / "raw"
        assert self.plain(cache).compiled == 2
        return cache

    def copy_of_filled(self, store: Path) -> Job:
        """Put a copy into the place of this store, which is empty."""
        filled, cold = self.filled
        shutil.rmtree(store)
        subprocess.run(["cp", "-a", filled, store], check=True)
        return cold


@pytest.fixture(scope="module")
def newest(program: Program, public: Path) -> Triton:
    """For what does not depend on how Triton writes its cache."""
    return Triton(program, [], public, "3.9.0")


@pytest.fixture(scope="module")
def older(program: Program, public: Path) -> Triton:
    old = public / "triton36"
    source = ROOT / ".build" / "triton36"
    assert source.is_dir(), "make test installs it; for pytest alone: make .build/triton36"
    if os.geteuid() == 0 and subprocess.run(["cp", "-r", "--link", source, old], check=False).returncode:
        shutil.copytree(source, old, dirs_exist_ok=True)
    elif os.geteuid() != 0:
        old.symlink_to(source)
    return Triton(program, [str(old)], public, "3.6.0")


@pytest.fixture(params=["newest", "older"])
def triton(request: pytest.FixtureRequest) -> Triton:
    made: Triton = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def store(program: Program, public: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path = public / f"real-{abs(hash(request.node.nodeid))}"
    assert program.ondol("store", "init", str(path), "--writers", str(UID)).returncode == 0
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_kernels_are_not_compiled_again_at_another_path(triton: Triton, store: Path) -> None:
    """C8: cold once; then every kernel hits, in another room and in another checkout."""
    cold = triton.copy_of_filled(store)
    assert (cold.status, cold.compiled, cold.hits) == (0, 2, 0), cold
    assert cold.said["triton"] == triton.version
    warm = triton.job(store, "--require-warm", kernels=triton.checkout("another-checkout"))
    assert (warm.status, warm.compiled, warm.hits) == (0, 0, 2), warm
    assert "2 filled, 2 used, 0 new" in warm.stderr
    assert "of compiling saved" in warm.stderr


def test_plainly_copied_cache_misses_where_ondol_hits(triton: Triton, tmp_path: Path) -> None:
    """The fault that we relocate for: without it, a moved cache is a silent, complete miss."""
    subprocess.run(["cp", "-a", triton.raw, tmp_path / "moved"], check=True)
    aside = triton.raw.rename(triton.raw.with_name("aside"))  # or the copy would be served from where it came
    moved = triton.plain(tmp_path / "moved")
    aside.rename(triton.raw)
    assert moved.compiled == 2


def test_require_warm_does_not_pass_a_job_that_compiled(newest: Triton, store: Path) -> None:
    cold = newest.job(store, "--require-warm", "--frozen")
    assert cold.status == 122
    assert "scale_and_shift" in cold.stderr
    assert "row_norm" in cold.stderr
    assert list(store.rglob("*.pack")) == []  # frozen: nothing was published
    newest.copy_of_filled(store)
    assert newest.job(store, "--require-warm", "--frozen").status == 0


@needs_root
@pytest.mark.root
def test_seed_000_a_cache_of_another_user_ends_no_job(triton: Triton, store: Path) -> None:
    """A cache directory with 0755 entry directories of another UID: plain Triton dies, the same command under Ondol hits."""
    cache = triton.raw  # of root, as the container of the week before left it
    cache.chmod(0o777)
    entries = [path for path in cache.iterdir() if path.is_dir()]
    for entry in entries:
        entry.chmod(0o755)
    # Incomplete, as after a trim by age: now Triton must write into a directory that it may not write.
    victim = entries[0]
    group = next(victim.glob("__grp__*"))
    lost = group.read_bytes()
    group.unlink()
    died = triton.plain(cache, uid=UID)
    assert died.status == 1
    assert "PermissionError: [Errno 13] Permission denied" in died.stderr
    assert "tmp.pid_" in died.stderr

    adopted = triton.program.ondol("store", "adopt", str(cache), "--store", str(store))
    assert adopted.returncode == 0, adopted.stderr
    assert f"incomplete: {victim.name}" in adopted.stdout
    before = tree(cache)
    # The workflow's own TRITON_CACHE_DIR is still set, as the image sets it; naming the tool is what changes its meaning.
    saved = triton.job(store, "--tools", "triton", uid=UID, TRITON_CACHE_DIR=str(cache))
    assert (saved.status, saved.hits, saved.compiled) == (0, 1, 1), saved
    again = triton.job(store, "--tools", "triton", uid=UID, TRITON_CACHE_DIR=str(cache))
    assert (again.status, again.hits, again.compiled) == (0, 2, 0), again
    assert tree(cache) == before
    group.write_bytes(lost)  # other tests read it


def tree(path: Path) -> list[tuple[str, int, float]]:
    return sorted((str(p), p.lstat().st_mode, p.lstat().st_mtime) for p in path.rglob("*"))


@needs_root
@pytest.mark.root
def test_seed_001_a_read_only_store_serves_hits_and_misses_compile(newest: Triton, store: Path) -> None:
    """Hits are served, misses compile, and nothing is written to the store."""
    newest.copy_of_filled(store)
    victim = next(store.rglob("*.pack"))
    victim.unlink()
    before = tree(store)
    subprocess.run(["mount", "--bind", str(store), str(store)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(store)], check=True)
    try:
        job = newest.job(store, "--publish", "never", uid=UID)
    finally:
        subprocess.run(["umount", str(store)], check=True)
    assert (job.status, job.hits, job.compiled, job.warnings) == (0, 1, 1, []), job
    assert tree(store) == before


@pytest.mark.parametrize("variable", ["TRITON_CACHE_DIR", "TRITON_HOME"])
def test_users_own_cache_directory_is_not_overridden(
    newest: Triton, store: Path, tmp_path: Path, variable: str
) -> None:
    theirs: dict[str, Any] = {variable: str(tmp_path)}
    job = newest.job(store, **theirs)
    assert (job.status, job.compiled) == (0, 2)
    assert f"{variable}={tmp_path} is set and left as it is" in job.stderr
    assert len(list(tmp_path.rglob("*.cubin"))) == 2
    assert list(store.rglob("*.pack")) == []


def test_users_cache_manager_is_not_clobbered(newest: Triton, store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from triton.runtime.cache import FileCacheManager\n"
        "class Mine(FileCacheManager):\n"
        "    def put(self, data, filename, binary=True):\n"
        f"        open({str(tmp_path / 'seen')!r}, 'a').write(filename + ' ')\n"
        "        return super().put(data, filename, binary)\n"
    )
    path = os.pathsep.join([newest.env()["PYTHONPATH"], str(tmp_path)])
    job = newest.job(store, TRITON_CACHE_MANAGER="mine:Mine", PYTHONPATH=path)
    assert job.compiled == 2, job
    assert "TRITON_CACHE_MANAGER=mine:Mine is kept" in job.stderr
    assert "scale_and_shift.cubin" in (tmp_path / "seen").read_text()
    assert newest.job(store).hits == 2


def test_helper_library_is_neither_built_again_nor_given_to_another_python(
    program: Program, store: Path, public: Path, tmp_path: Path
) -> None:
    """Host code travels under processor, C library and Python ABI; kernels under `any`."""
    source = ROOT / "tests" / "programs" / "fake_libcuda.c"
    driver = public / "driver"
    driver.mkdir(exist_ok=True)
    build = ["gcc", "-shared", "-fPIC", "-o", str(driver / "libcuda.so.1"), "-Wl,-soname,libcuda.so.1", str(source)]
    subprocess.run(build, check=True)
    env = {"TRITON_LIBCUDA_PATH": str(driver), "LD_LIBRARY_PATH": str(driver)}
    command = ["run", "--store", str(store), "--", program.python, str(program.programs / "launch.py")]
    cold = Job(program.ondol(*command, env=env))
    assert (cold.said["compiled"], cold.said["built"]) == (1, 1), cold
    warm = Job(program.ondol(*command, env=env))
    assert (warm.said["compiled"], warm.said["built"], warm.said["hits"]) == (0, 0, 1), warm
    listed = json.loads(program.ondol("store", "ls", "--store", str(store), "--json").stdout)["entries"]
    fingerprints = sorted(entry["fingerprint"] for entry in listed)
    assert fingerprints[0] == "any"
    assert fingerprints[1].startswith(f"{os.uname().machine}-")
    assert "cpython-3" in fingerprints[1]


def test_autotune_leftovers_and_half_files_do_not_travel(newest: Triton, store: Path) -> None:
    """Temporary directories of killed compilers stay in the room that dies with them."""
    leave = (
        'mkdir -p "$TRITON_CACHE_DIR/$(printf "A%.0s" $(seq 52))/tmp.pid_1_x"; '
        'touch "$TRITON_CACHE_DIR/$(printf "A%.0s" $(seq 52))/tmp.pid_1_x/half.cubin"'
    )
    arguments = ["run", "--store", str(store), "-v", "--", "sh", "-c", leave]
    done = newest.program.ondol(*arguments, env=newest.env())
    assert done.returncode == 0
    assert "1 incomplete, not published" in done.stderr
    assert list(store.rglob("*.pack")) == []
