"""A guard where nobody asked for one, or another one than at a desk, or another one with -v: seed 002's C16, C28, C29."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.test_uv_heals import metadata_missing
from people import Program
from uv_caches import Inside, Uv

pytestmark = [pytest.mark.real, pytest.mark.warm]


def test_ondol_run_neither_locks_nor_heals_a_package_cache(uv: Uv) -> None:
    """C16: what is not guarded fails as it fails without us, and nothing is set aside."""
    metadata_missing(uv)
    alone = uv.naked()
    done = uv.run([uv.program.python, "-m", "ondol", "run", "--", *uv.words()])
    assert done.returncode == alone.returncode != 0
    assert uv.set_aside() == []
    with Inside(uv.guard("--cache", str(uv.cache)), env=uv.env()) as holder:
        holder.entered()
        assert uv.run([uv.program.python, "-m", "ondol", "run", "--", "true"]).returncode == 0, "it waits for no lock"
        holder.leave()


def test_two_builds_at_a_desk_take_turns_on_the_users_own_cache(program: Program, uv: Uv, tmp_path: Path) -> None:
    """C28: no variable of any CI system, no --cache, uv's default place below HOME."""
    home = tmp_path / "desk"
    (home / ".cache" / "uv").mkdir(parents=True)
    env = {name: value for name, value in uv.env(HOME=str(home)).items() if name != "UV_CACHE_DIR"}
    guard = [program.python, "-m", "ondol", "guard", "--", str(uv.uv), "run", "--no-project", "--offline", "--"]
    with Inside(guard, env=env) as first:
        first.entered()
        with Inside(guard, env=env) as second:
            assert f"waiting for {home}/.cache/uv, held by pid " in second.waits()
            first.leave()
            second.entered().leave()


@pytest.mark.parametrize(("ours", "uvs"), [([], []), (["-v"], ["-v"]), ([], ["--quiet"])], ids=str)
def test_what_is_done_does_not_depend_on_how_much_is_told(uv: Uv, ours: list[str], uvs: list[str]) -> None:
    """C29: our -v and the tool's own change what is printed, and nothing else."""
    archive = uv.archive("alpha").name
    metadata_missing(uv)
    done = uv.run([*uv.guard(*ours), *uv.words(), *uvs])
    assert done.returncode == 0, done.stderr
    assert uv.works()
    assert f"archive-v0/{archive}" in uv.set_aside()
