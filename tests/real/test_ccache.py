"""Real ccache behind `ccache.shared`: a cache for each job alone, in front of one that jobs read and trusted jobs write."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from people import Program, needs_root
from real.tool_lives import UID

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not shutil.which("ccache"), reason="ccache is not installed (tests/setup_machine.py does it)"),
]

SOURCE = "int triple(int x) { return 3 * x; }\n"
BUILD = "ccache gcc -c triple.c -o triple.o && ccache --print-stats"
PULL_REQUEST: dict[str, Any] = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_REF": "refs/pull/7/merge",
}


class Build:
    """What ccache counted, and what Ondol said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.stderr = done.returncode, done.stderr
        self.counts = {name: int(value) for name, value in re.findall(r"^(\w+)\t(\d+)$", done.stdout, re.MULTILINE)}

    @property
    def hits(self) -> int:
        return self.counts["direct_cache_hit"] + self.counts["preprocessed_cache_hit"]


@pytest.fixture
def checkout(public: Path, request: pytest.FixtureRequest) -> Path:
    path = public / f"ccache-{abs(hash(request.node.nodeid))}"
    path.mkdir()
    (path / "triple.c").write_text(SOURCE)
    path.chmod(0o777)
    return path


def build(program: Program, checkout: Path, *options: str, uid: int | None = None, **env: str) -> Build:
    store = ["--store", str(checkout / f"store-{uid}")]
    arguments = ["run", *store, *options, "--", "sh", "-c", BUILD]
    return Build(program.ondol(*arguments, uid=uid, cwd=checkout, env={"HOME": str(checkout / "home"), **env}))


def tree(path: Path) -> list[tuple[str, int]]:
    return sorted((str(p), p.stat().st_mtime_ns) for p in path.rglob("*") if p.is_file())


def test_object_is_not_compiled_again_in_every_job(program: Program, checkout: Path) -> None:
    program.ondol("store", "init", str(checkout / "store-None"))
    checkout.chmod(0o755)  # a settings file where others can write would not be used
    (checkout / "ondol.toml").write_text(f'[ccache]\nshared = "{checkout}/a shared place"\n')
    cold = build(program, checkout)
    assert (cold.status, cold.hits, cold.counts["cache_miss"]) == (0, 0, 1), cold.stderr
    warm = build(program, checkout)
    assert (warm.status, warm.hits, warm.counts["cache_miss"]) == (0, 1, 0), warm.stderr
    assert "warning" not in cold.stderr + warm.stderr
    assert warm.counts["remote_storage_hit"] == 1
    assert warm.counts["local_storage_hit"] == 0  # the private one is new for each job


def test_pull_request_does_not_write_what_others_read(program: Program, checkout: Path) -> None:
    shared = checkout / "shared"
    shared.mkdir()
    untrusted = build(program, checkout, "--ccache-shared", str(shared), **PULL_REQUEST)
    assert (untrusted.status, untrusted.counts["cache_miss"]) == (0, 1), untrusted.stderr
    assert tree(shared) == []
    build(program, checkout, "--ccache-shared", str(shared))
    before = tree(shared)
    assert before
    for options, env in ((("--frozen",), {}), (("--publish", "never"), {}), ((), PULL_REQUEST)):
        reader = build(program, checkout, "--ccache-shared", str(shared), *options, **env)
        assert (reader.status, reader.hits) == (0, 1), reader.stderr
    assert tree(shared) == before


@needs_root
@pytest.mark.root
def test_shared_directory_of_another_user_fails_no_build(program: Program, checkout: Path) -> None:
    """Hits are served; what may not be written is not, and the compiler's status is the build's."""
    shared = checkout / "shared"
    build(program, checkout, "--ccache-shared", str(shared))
    (checkout / "triple.o").unlink()
    hit = build(program, checkout, "--ccache-shared", str(shared), uid=UID)
    assert (hit.status, hit.hits) == (0, 1), hit.stderr
    (checkout / "triple.c").write_text(SOURCE.replace("3", "4"))
    before = tree(shared)
    miss = build(program, checkout, "--ccache-shared", str(shared), uid=UID)
    assert (miss.status, miss.counts["cache_miss"]) == (0, 1), miss.stderr
    assert tree(shared) == before


def test_damaged_object_is_not_linked(program: Program, checkout: Path) -> None:
    """ccache checks what it reads; with every file behind it truncated or emptied it compiles."""
    shared = checkout / "shared"
    build(program, checkout, "--ccache-shared", str(shared))
    good = (checkout / "triple.o").read_bytes()
    for keep in (0, 0.5):
        for path, _ in tree(shared):
            Path(path).write_bytes(Path(path).read_bytes()[: int(Path(path).stat().st_size * keep)])
        run = build(program, checkout, "--ccache-shared", str(shared), "--frozen")
        assert (run.status, run.hits) == (0, 0), run.stderr
        assert (checkout / "triple.o").read_bytes() == good
        build(program, checkout, "--ccache-shared", str(shared))


def test_ccache_is_not_touched_by_a_job_that_did_not_configure_it(program: Program, checkout: Path) -> None:
    own: dict[str, Any] = {"CCACHE_DIR": str(checkout / "own")}
    left = build(program, checkout, "-v", **own)
    assert left.status == 0
    assert "CCACHE" not in left.stderr
    assert (checkout / "own").is_dir()
    theirs = build(program, checkout, "--ccache-shared", str(checkout / "shared"), **own)
    assert f"ccache: CCACHE_DIR={checkout}/own is set and left as it is" in theirs.stderr
    named = build(program, checkout, "--tools", "ccache", **own)
    assert "ccache: left as it is, because ccache-shared is not set" in named.stderr
