"""The image sets TRITON_CACHE_DIR to a directory of many users: taken at its word, the job dies there as it did before."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ondol.host import filesystem
from ondol.tools import registry
from people import Program, needs_root

pytestmark = pytest.mark.warm

UID, ANOTHER = 1000, 1001
SHOW = ["sh", "-c", 'echo "$TRITON_CACHE_DIR|$TILELANG_CACHE_DIR|$TILELANG_TMP_DIR"']


@pytest.fixture
def cache(public: Path) -> Iterator[Path]:
    path = public / "ci-cache"
    path.mkdir()
    os.chown(path, UID, UID)
    yield path
    shutil.rmtree(path)


def run(program: Program, *options: str, **env: str) -> tuple[list[str], str]:
    done = program.ondol("run", *options, "--", *SHOW, uid=UID, env=env)
    assert done.returncode == 0, done
    return done.stdout.strip().split("|"), done.stderr


def open_to_all(path: Path) -> str:
    path.chmod(0o777)
    return "other users can write it (mode 0777)"


def for_a_group(path: Path) -> str:
    os.chown(path, UID, 4242)
    path.chmod(0o2775)
    return "other users can write it (mode 2775)"


def of_root(path: Path) -> str:
    os.chown(path, 0, 0)
    return f"uid {UID} cannot write {path}"


def of_another_who_lets_all_write(path: Path) -> str:
    os.chown(path, ANOTHER, ANOTHER)
    path.chmod(0o777)
    return f"it belongs to uid {ANOTHER}"


def with_an_entry_of_another(path: Path) -> str:
    (path / "KEY").mkdir()
    os.chown(path / "KEY", ANOTHER, ANOTHER)
    return f"uid {ANOTHER} has written there too (KEY)"


@needs_root
@pytest.mark.root
class TestOthers:
    @pytest.mark.parametrize(
        "share", [open_to_all, for_a_group, of_root, of_another_who_lets_all_write, with_an_entry_of_another]
    )
    def test_a_cache_that_others_write_is_replaced_and_the_reason_told(
        self, program: Program, cache: Path, share: Callable[[Path], str]
    ) -> None:
        why = share(cache)
        (used, _, _), said = run(program, TRITON_CACHE_DIR=str(cache))
        assert not used.startswith(str(cache))
        assert f"triton: TRITON_CACHE_DIR={cache} is replaced for this command: {why}" in said
        assert said.count(str(cache)) <= 2, "the variable and, where it is the reason, the path; once"
        assert "(to keep it: --tools auto,-triton)" in said

    def test_what_the_message_says_to_type_keeps_it(self, program: Program, cache: Path) -> None:
        cache.chmod(0o777)
        (used, tilelang, _), said = run(program, "--tools", "auto,-triton", TRITON_CACHE_DIR=str(cache))
        assert (used, "triton" in said) == (str(cache), False)
        assert tilelang, "the others are managed as ever"

    @pytest.mark.parametrize("mode", [0o700, 0o755, 0o775])
    def test_ones_own_cache_is_kept(self, program: Program, cache: Path, mode: int) -> None:
        cache.chmod(mode)  # 775 with a group of one's own is what umask 002 makes
        (cache / "KEY").mkdir()
        os.chown(cache / "KEY", UID, UID)
        (used, _, _), said = run(program, TRITON_CACHE_DIR=str(cache))
        assert used == str(cache)
        assert "is set and left as it is" in said

    def test_one_that_the_job_will_make_itself_is_kept(self, program: Program, cache: Path) -> None:
        (used, _, _), _ = run(program, TRITON_CACHE_DIR=str(cache / "not" / "yet"))
        assert used == str(cache / "not" / "yet")
        (used, _, _), said = run(program, TRITON_CACHE_DIR="/proc/not/yet")
        assert not used.startswith("/proc")
        assert f"uid {UID} cannot write /proc" in said

    def test_tilelangs_temporary_directory_does_not_stay_behind(self, program: Program, cache: Path) -> None:
        cache.chmod(0o777)
        variables = {"TILELANG_CACHE_DIR": str(cache), "TILELANG_TMP_DIR": str(cache / "tmp")}
        (_, used, tmp), _ = run(program, **variables)
        assert tmp == f"{used}/tmp"
        assert not used.startswith(str(cache))
        assert run(program)[0][2] == "", "and it is not set where nobody had set it"

    def test_a_job_inside_a_job_keeps_the_room_it_is_in(self, program: Program) -> None:
        inner = [program.python, "-m", "ondol", "run", "--", *SHOW]
        done = program.ondol("run", "--", "sh", "-c", f'echo "$TRITON_CACHE_DIR"; {shlex.join(inner)}', uid=UID)
        outer, within = done.stdout.splitlines()
        assert within.split("|")[0] == outer


def test_a_network_file_system_is_not_touched_to_know_that_others_write_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filesystem, "fs_type", lambda path: "nfs4")
    monkeypatch.setattr(os, "stat", lambda *_, **__: pytest.fail("a dead server would hold this look for ever"))
    assert "network file system (nfs4)" in filesystem.why_common(str(tmp_path))


def test_a_name_left_out_must_exist(program: Program) -> None:
    assert "triton" not in {row.name for row in registry.choose(["auto", "-triton"])}
    done = program.ondol("run", "--tools", "auto,-trition", "--", "true")
    assert done.returncode == 2
    assert "trition" in done.stderr


def test_what_is_not_a_path_is_kept(program: Program) -> None:
    env = {"JAX_COMPILATION_CACHE_DIR": "gs://bucket/cache"}
    done = program.ondol("run", "--", "sh", "-c", "echo $JAX_COMPILATION_CACHE_DIR", env=env)
    assert done.stdout.strip() == "gs://bucket/cache"
