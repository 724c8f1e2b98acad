"""Real uv, a real cache, and one entry of it damaged: naked every install fails for ever, guarded it ends installed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from people import Program
from uv_caches import Uv, warm

pytestmark = [pytest.mark.real, pytest.mark.warm]


def _info(uv: Uv, package: str) -> Path:
    return uv.archive(package) / f"{package}-1.0.dist-info"


def metadata_missing(uv: Uv) -> None:
    (_info(uv, "alpha") / "METADATA").unlink()


def metadata_empty(uv: Uv) -> None:
    (_info(uv, "alpha") / "METADATA").write_bytes(b"")


def record_missing(uv: Uv) -> None:
    (_info(uv, "alpha") / "RECORD").unlink()


def wheel_missing(uv: Uv) -> None:
    (_info(uv, "alpha") / "WHEEL").unlink()


def wheel_empty(uv: Uv) -> None:
    (_info(uv, "alpha") / "WHEEL").write_bytes(b"")


def dist_info_missing(uv: Uv) -> None:
    shutil.rmtree(_info(uv, "alpha"))


def archive_emptied(uv: Uv) -> None:
    for path in uv.archive("alpha").iterdir():
        shutil.rmtree(path)


LOUD = [
    metadata_missing,
    metadata_empty,
    record_missing,
    wheel_missing,
    wheel_empty,
    dist_info_missing,
    archive_emptied,
]
Damage = Callable[[Uv], None]


def expect_only_gone(uv: Uv, link: Path, archive: str) -> None:
    inside = link.relative_to(uv.cache)
    assert uv.set_aside() == [f"archive-v0/{archive}", f"{inside}", f"{inside}.http"]


@pytest.mark.parametrize("damage", LOUD)
def test_damaged_entry_is_healed_and_the_install_succeeds(uv: Uv, damage: Damage) -> None:
    """C01, C02, C08, C32: the incident of seed 002, in all its forms."""
    archive, link = uv.archive("alpha").name, uv.link("alpha")
    damage(uv)
    healthy = {**uv.entry("beta"), **uv.entry("gamma")}
    for _ in range(2):
        assert uv.naked().returncode != 0

    done = uv.guarded()

    assert done.returncode == 0, done.stderr
    assert uv.works()
    expect_only_gone(uv, link, archive)
    assert {**uv.entry("beta"), **uv.entry("gamma")} == healthy
    assert uv.naked().returncode == 0
    assert uv.works()


@pytest.mark.parametrize("damage", ["lost", "cut off", "edited through an installed hard link"])
def test_damage_that_uv_does_not_see_is_found_when_asked_for(uv: Uv, damage: str) -> None:
    """uv succeeds and the environment is broken: nothing fails that could be healed, so `--verify` looks first."""
    archive, link = uv.archive("alpha"), uv.link("alpha")
    module = archive / "alpha" / "sub" / "mod.py"
    healthy = {**uv.entry("beta"), **uv.entry("gamma")}
    if damage == "lost":
        module.unlink()
    elif damage == "cut off":
        module.write_bytes(module.read_bytes()[:7])
    else:
        installed = uv.last / "alpha" / "sub" / "mod.py"
        assert installed.samefile(module), "uv links by default here; else there is nothing to test"
        with installed.open("a") as file:
            file.write("VALUE = 'somebody was here'\n")
    assert uv.naked().returncode == 0
    assert not uv.works()

    done = uv.guarded(options=("--verify",))

    assert done.returncode == 0, done.stderr
    assert uv.works()
    expect_only_gone(uv, link, archive.name)
    assert {**uv.entry("beta"), **uv.entry("gamma")} == healthy


def test_archive_that_is_gone_is_healed_for_an_old_uv(
    program: Program, uv_program: Callable[[str], Path], index: str, tmp_path: Path
) -> None:
    """uv 0.4 follows a link to nothing; later ones download again. Links are absolute there."""
    uv = warm(Uv(program, uv_program("uv04"), tmp_path / "cache", index, tmp_path))
    link = uv.link("alpha")
    healthy = {**uv.entry("beta"), **uv.entry("gamma")}
    shutil.rmtree(uv.archive("alpha"))
    assert uv.naked().returncode != 0

    done = uv.guarded()

    assert done.returncode == 0, done.stderr
    assert uv.works()
    folder = link.parent.relative_to(uv.cache)
    assert uv.set_aside() == [f"{folder}/{link.name}", f"{folder}/{link.name}.http"]
    assert {**uv.entry("beta"), **uv.entry("gamma")} == healthy


@pytest.mark.parametrize("suffix", [".http", ".msgpack"])
@pytest.mark.parametrize("left", [0, 20])
def test_torn_pointer_is_found_on_the_way(uv: Uv, suffix: str, left: int) -> None:
    """uv itself downloads again what it leads to, so online it fails nothing; healing something else finds it too."""
    metadata_missing(uv)
    pointer = uv.link("beta").with_name(uv.link("beta").name + suffix)
    pointer.write_bytes(pointer.read_bytes()[:left])
    alpha = uv.archive("alpha").name
    healthy = uv.entry("gamma")

    done = uv.guarded("alpha")

    assert done.returncode == 0, done.stderr
    assert not pointer.exists()
    link, torn = uv.link("alpha").relative_to(uv.cache), str(pointer.relative_to(uv.cache))
    assert uv.set_aside() == sorted([f"archive-v0/{alpha}", str(link), f"{link}.http", torn])
    assert uv.entry("gamma") == healthy
    assert uv.naked().returncode == 0
    assert uv.works()


def test_whole_cache_is_searched_and_nothing_found(uv: Uv) -> None:
    """A healthy cache is left exactly as it is, by --verify as well."""
    before = {str(path): path.lstat().st_ino for path in uv.cache.rglob("*")}

    done = uv.guarded(options=("--verify",))

    assert (done.returncode, uv.set_aside()) == (0, [])
    assert "ondol:" not in done.stderr
    after = {str(path): path.lstat().st_ino for path in uv.cache.rglob("*")}
    assert {path: inode for path, inode in after.items() if path in before} == before


def test_cached_environment_is_not_taken_for_a_torn_wheel(uv: Uv) -> None:
    """`uvx` keeps whole environments among the archives; they have no RECORD, and somebody may be working in one."""
    metadata_missing(uv)
    environment = uv.cache / "archive-v0" / "an-environment"
    environment.mkdir()
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (uv.cache / "environments-v2").mkdir(exist_ok=True)
    (uv.cache / "environments-v2" / "key").symlink_to("../archive-v0/an-environment")

    done = uv.guarded()

    assert done.returncode == 0, done.stderr
    assert (environment / "pyvenv.cfg").exists()
    assert (uv.cache / "environments-v2" / "key").exists()


def test_what_was_done_is_said(uv: Uv) -> None:
    """C33, C34, C38: which machine, which directory, what was wrong, where it is now; for people and for programs."""
    archive = uv.archive("alpha").name
    metadata_missing(uv)

    done = uv.guarded(options=("--json", "guard.json"))

    host = os.uname().nodename
    said = [line.removeprefix("ondol: ") for line in done.stderr.splitlines() if line.startswith("ondol: ")]
    assert said[0].startswith(f"{host}: a fault of the cache {uv.cache} (uv-torn-archive): ")
    assert f"set aside: archive-v0/{archive}: METADATA is missing (alpha-1.0)" in said
    assert any(line.startswith(f"kept in {uv.cache.parent}/.cache.ondol-aside-") and host in line for line in said)
    assert said[-1] == "guard: 1 bad entry set aside, succeeded at attempt 2"
    (note,) = uv.cache.parent.glob(".cache.ondol-aside-*/*/WHAT-IS-THIS.txt")
    assert f"archive-v0/{archive}: METADATA is missing" in note.read_text()
    report = json.loads((uv.target / "guard.json").read_text())
    assert report["status"] == 0
    assert [attempt["status"] for attempt in report["attempts"]] == [2, 0]
    assert report["attempts"][0]["fault"] == "uv-torn-archive"
    assert [one["path"] for one in report["healed"][0]["taken"]] == [f"archive-v0/{archive}"]


def test_healing_that_is_off_does_not_happen(uv: Uv) -> None:
    metadata_missing(uv)
    naked = uv.naked()

    done = uv.guarded(options=("--heal", "off"))

    assert done.returncode == naked.returncode
    assert uv.set_aside() == []
    assert "ondol:" not in done.stderr


def test_second_failure_is_final(uv: Uv) -> None:
    """C35: one retry; then the command's own last words and status are the end, with no third run."""
    metadata_missing(uv)
    (uv.target / "again.sh").write_text(
        f"echo run >> runs\n{' '.join(uv.words())}\nstatus=$?\nrm -f {uv.cache}/archive-v0/*/alpha-1.0.dist-info/METADATA\n"
        "if [ $status = 0 ]; then rm -rf installed-*; " + " ".join(uv.words()) + "; status=$?; fi\nexit $status\n"
    )

    done = uv.run([*uv.guard("--cache", str(uv.cache)), "sh", "again.sh"])

    assert done.returncode == 2
    assert (uv.target / "runs").read_text() == "run\nrun\n"
    assert "failed with status 2 at attempt 2" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("what", ["network", "resolver", "unknown"])
def test_failure_that_is_not_the_caches_does_not_touch_it(uv: Uv, what: str) -> None:
    """C39 and the worst of the merged fix: an unreachable index must not cost anybody a warm cache."""
    metadata_missing(uv)  # even if there is something bad in it
    words = uv.words("alpha" if what != "resolver" else "no-such-package-anywhere")
    if what == "network":
        words = [word.replace(uv.index, "http://127.0.0.1:9/simple") for word in words]
    if what == "unknown":
        words = ["sh", "-c", "echo some test failed; exit 1"]
    before = {str(path): path.lstat().st_ino for path in uv.cache.rglob("*") if path.is_dir()}

    done = uv.run([*uv.guard("--cache", str(uv.cache)), *words])

    assert done.returncode != 0
    assert uv.set_aside() == []
    assert "ondol:" not in done.stderr
    after = {str(path): path.lstat().st_ino for path in uv.cache.rglob("*") if path.is_dir()}
    assert {path: inode for path, inode in after.items() if path in before} == before


def test_command_whose_standard_input_was_read_is_not_run_again(uv: Uv) -> None:
    """The retry would install nothing and succeed. A pipe is not tried again; a file is read again."""
    metadata_missing(uv)
    words = [*uv.words("alpha")[:-1], "-r", "-"]
    done = uv.run([*uv.guard(), *words], input="alpha\n")
    assert done.returncode == 2
    assert "not tried once more" in done.stderr
    assert not uv.works("alpha")

    warm(uv)
    metadata_missing(uv)
    words = [*uv.words("alpha")[:-1], "-r", "-"]
    (uv.target / "input").write_text("alpha\n")
    with (uv.target / "input").open() as file:
        done = uv.run([*uv.guard(), *words], stdin=file)
    assert done.returncode == 0, done.stderr
    assert uv.works("alpha")
