"""uv itself cannot lock a cache on some file systems (`os error 524`): it gets one on this node, and tries once more."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.test_strace import strace
from uv_caches import Uv

__all__ = ["strace"]
pytestmark = [pytest.mark.fault, pytest.mark.warm]


@pytest.fixture
def moved() -> Iterator[Path]:
    """One for each user of a machine: the tests of another checkout wait for their turn."""
    path = Path(f"/tmp/ondol-{os.geteuid()}/uv-cache")
    turn = os.open(
        f"/tmp/ondol-tests-{os.geteuid()}.turn", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        shutil.rmtree(path, ignore_errors=True)
        yield path
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(turn)


def without_locks(strace: str, uv: Uv) -> list[str]:
    """The kernel refuses to lock uv's own lock file in this cache, and no other."""
    where = ["-P", str(uv.cache / ".lock"), "-e", "trace=flock", "-e", "inject=flock:error=524"]
    return [strace, "-f", "-qq", "-o", "/dev/null", *where]


def test_uv_that_cannot_lock_its_cache_gets_one_on_this_node(strace: str, uv: Uv, moved: Path, tmp_path: Path) -> None:
    naked = uv.run([*without_locks(strace, uv), *uv.words("alpha")])
    assert (naked.returncode, "os error" in naked.stderr) == (2, True), naked.stderr
    report = tmp_path / "report"
    guard = uv.guard("--cache", str(uv.cache), "--json", str(report))
    done = uv.run([*guard, *without_locks(strace, uv), *uv.words("alpha")])
    assert done.returncode == 0, done.stderr
    assert uv.works("alpha")
    assert f"UV_CACHE_DIR={moved} for this command" in done.stderr
    said = json.loads(report.read_text())
    assert (said["relocated"], len(said["attempts"])) == (str(moved), 2)


def test_uv_that_is_told_where_its_cache_is_is_not_run_again(strace: str, uv: Uv, moved: Path) -> None:
    words = [*uv.words("alpha"), "--cache-dir", str(uv.cache)]
    done = uv.run([*uv.guard("--cache", str(uv.cache)), *without_locks(strace, uv), *words])
    assert (done.returncode, "--cache-dir keeps it there" in done.stderr, moved.exists()) == (2, True, False)
