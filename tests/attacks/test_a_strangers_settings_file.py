"""Another user of the machine leaves a settings file where our commands look for one: in a directory that all can write.

What such a file names is executed (a store of the stranger's), overwritten (`json`) or simply opened (a FIFO, an endless
device). None of it may happen, and no command may fail of it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol import config
from ondol.trust import settings
from people import Program, needs_root

pytestmark = [needs_root, pytest.mark.root, pytest.mark.warm]

STRANGER, VICTIM = 6666, 2004


@pytest.fixture
def common(public: Path) -> Iterator[Path]:
    """As /tmp: everybody can add files, nobody can take away another's."""
    path = public / "common"
    path.mkdir()
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def below(common: Path) -> Path:
    """A directory of the victim's own in it."""
    path = common / "work"
    path.mkdir()
    return path


def write_as(uid: int, path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, uid, uid)


def trap(program: Program, common: Path) -> str:
    """Settings that make a reader use the stranger's own store, which holds the kernel `k`."""
    store = common / "store"
    made = program.ondol("store", "init", str(store), uid=STRANGER)
    assert made.returncode == 0, made
    job = program.job(store, "k", uid=STRANGER, cwd=common, env={"XDG_CACHE_HOME": str(common / "cache")})
    assert (job.status, job.compiled) == (0, 1), job
    return f'store = "{store}"\ntrust = [{STRANGER}]\n'


def run(program: Program, cwd: Path, *options: str, uid: int | None = None, **how: object) -> dict[str, object]:
    """`ondol run` with a kernel, by the victim, without naming a store."""
    home = cwd / "home-of-victim"
    home.mkdir(exist_ok=True)
    if uid is not None:
        os.chown(home, uid, uid)
    words = ["run", "--tools", "triton", *options, "--", program.python, str(program.programs / "standin.py"), "k"]
    done = program.ondol(*words, uid=uid, cwd=cwd, env={"HOME": str(home)}, **how)  # type: ignore[arg-type]
    assert done.returncode == 0, done
    return {**json.loads(done.stdout), "stderr": done.stderr}


@pytest.mark.parametrize("victim", [None, VICTIM], ids=["root", "a user"])
@pytest.mark.parametrize("name", config.FILES)
@pytest.mark.parametrize("where", ["here", "above", "above with .git"])
def test_code_of_a_stranger_does_not_run(
    program: Program, common: Path, below: Path, victim: int | None, name: str, where: str
) -> None:
    text = trap(program, common)
    write_as(STRANGER, common / name, text if name == "ondol.toml" else f"[tool.ondol]\n{text}")
    if where == "above with .git":
        (common / ".git").mkdir()
        os.chown(common / ".git", STRANGER, STRANGER)
    if victim is not None:
        os.chown(below, victim, victim)
    done = run(program, common if where == "here" else below, uid=victim)
    assert (done["hits"], done["compiled"]) == (0, 1), done
    told = [line for line in str(done["stderr"]).splitlines() if f"belongs to user {STRANGER}" in line]
    assert len(told) == (1 if where == "here" else 0), done


def test_no_file_of_ours_is_overwritten(program: Program, common: Path, below: Path) -> None:
    precious = common.parent / "precious"
    write_as(0, precious, "mine", 0o600)
    for place in (common, below):
        write_as(STRANGER, place / "ondol.toml", f'json = "{precious}"\n')
        run(program, place)
        assert precious.read_text() == "mine"
    write_as(0, below / "ondol.toml", f'json = "{precious}"\n')  # nor by one of our own: a clone's file is "ours" too
    assert "json ignored" in str(run(program, below)["stderr"])
    assert precious.read_text() == "mine"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _directory(path: Path) -> None:
    path.mkdir()


def _nested(path: Path) -> None:
    path.write_text("x = " + "[" * 100_000)


def _not_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00 = 1\n")


def _unknown_key(path: Path) -> None:
    path.write_text('stroe = "/x"\n')


def _odd_values(path: Path) -> None:
    path.write_text(
        "store-timeout = nan\nfill-max = -1\nretries = true\ntools = 2026-01-01\nscope = {a = 1}\npublish = 7\n"
    )


def _many_keys(path: Path) -> None:
    path.write_text("".join(f"unknown-{number} = 1\n" for number in range(40_000)))


def _long_key(path: Path) -> None:
    path.write_text(f"{'k' * 500_000} = '{'v' * 400_000}'\n")


def _no_such_tool(path: Path) -> None:
    path.write_text('tools = ["trition"]\n')


def _no_such_store(path: Path) -> None:
    path.write_text('store = "s3://bucket/x"\n')


@pytest.mark.parametrize(
    "plant",
    [
        _fifo,
        _endless,
        _huge,
        _directory,
        _nested,
        _not_text,
        _unknown_key,
        _odd_values,
        _many_keys,
        _long_key,
        _no_such_tool,
        _no_such_store,
    ],
)
@pytest.mark.parametrize("owner", [STRANGER, 0], ids=["a stranger's", "our own"])
def test_command_neither_hangs_nor_fails_because_of_a_file(
    program: Program, below: Path, plant: object, owner: int
) -> None:
    plant(below / "ondol.toml")  # type: ignore[operator]
    os.chown(below / "ondol.toml", owner, owner, follow_symlinks=False)
    env, little_memory = {"HOME": str(below)}, {resource.RLIMIT_AS: 4 << 30}
    done = program.ondol("run", "--", "echo", "ran", cwd=below, env=env, timeout=60, limits=little_memory)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done
    assert "ondol: warning: " in done.stderr
    assert str(below / "ondol.toml") in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 5000
    told = program.ondol("open", "--format", "json", cwd=below, env=env, timeout=60, limits=little_memory)
    assert told.returncode == 0, told
    program.ondol("close", json.loads(told.stdout)["room"], "--status", "0", env=env)
    guarded = program.ondol("guard", "--cache", str(below), "--", "true", cwd=below, env=env, timeout=60)
    assert guarded.returncode == 0, guarded
    asked = program.ondol("config", cwd=below, env=env, timeout=60, limits=little_memory)
    if plant is not _no_such_tool or owner:
        assert asked.returncode == 2, asked
        assert "ondol: error: " in asked.stderr


def read(cwd: Path, **env: str) -> config.Settings:
    return settings.load({}, {"HOME": "/nonexistent", **env}, str(cwd))


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o664])
def test_a_file_that_others_can_write_is_not_used(below: Path, mode: int) -> None:
    write_as(0, below / "ondol.toml", "quiet = true\n", mode)
    os.chown(below / "ondol.toml", 0, 12345)  # a group with a name of its own, or none
    found = read(below)
    assert found.quiet is False
    assert "others can write" in found.warnings[0]
    (below / "ondol.toml").chmod(0o644)
    assert read(below).quiet is True


def test_a_file_below_a_directory_that_others_can_write_is_not_used(below: Path) -> None:
    (below / ".git").mkdir()
    deep = below / "a" / "b"
    deep.mkdir(parents=True)
    write_as(0, below / "ondol.toml", "quiet = true\n")
    write_as(0, deep / "ondol.toml", "verbose = true\n")
    assert read(deep).verbose is True
    for spoil, mend in (
        (lambda: (below / "a").chmod(0o777), lambda: (below / "a").chmod(0o755)),
        (lambda: os.chown(below / "a", STRANGER, STRANGER), lambda: os.chown(below / "a", 0, 0)),
    ):
        spoil()
        found = read(deep)
        assert (found.verbose, found.quiet) == (False, True)  # the file at the top is not reached through it
        assert str(below / "a") in found.warnings[0]
        mend()
        assert read(deep).warnings == []


def test_a_planted_file_does_not_hide_our_own_further_up(below: Path) -> None:
    (below / ".git").mkdir()
    (below / "sub").mkdir()
    write_as(0, below / "ondol.toml", 'publish = "never"\n')
    write_as(STRANGER, below / "sub" / "ondol.toml", 'publish = "auto"\n')
    assert read(below / "sub").publish == "never"


def test_a_file_with_a_second_name_elsewhere_is_not_used(common: Path) -> None:
    write_as(0, common.parent / "elsewhere.toml", "quiet = true\n")
    os.link(common.parent / "elsewhere.toml", common / "ondol.toml")
    found = read(common)
    assert found.quiet is False
    assert "2 names (hard links)" in found.warnings[0]


def test_a_users_file_of_somebody_else_is_not_used(common: Path) -> None:
    """`sudo` that keeps HOME; or HOME in a directory that others can write."""
    folder = common / "ondol"
    folder.mkdir()
    for owner, used in ((STRANGER, False), (0, True)):
        write_as(owner, folder / "ondol.toml", f"trust = [{STRANGER}]\n")
        found = read(Path("/"), XDG_CONFIG_HOME=str(common))
        assert (found.trust == [STRANGER]) is used
    os.chown(folder, STRANGER, STRANGER)
    assert read(Path("/"), XDG_CONFIG_HOME=str(common)).trust == []


def test_a_file_that_an_acl_lets_others_write_is_not_used(below: Path) -> None:
    if not shutil.which("setfacl"):
        pytest.skip("setfacl is not installed here")
    path = below / "ondol.toml"
    write_as(0, path, "quiet = true\n", 0o664)
    assert read(below).quiet is True  # root's own group
    set_it = subprocess.run(["setfacl", "-m", f"u:{STRANGER}:rw", str(path)], capture_output=True, check=False)
    if set_it.returncode:
        pytest.skip("no ACLs on this file system")
    assert read(below).quiet is False
