"""Real pip with a damaged download in its cache: `Using cached …`, an invalid wheel, for ever; guarded it ends installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wheelhouse
from ondol.guard.pip import Pip as Healer
from people import Program
from uv_caches import PACKAGES, Done, build, clean_environ

pytestmark = pytest.mark.real


class Pip:
    def __init__(self, program: Program, source: str, cache: Path, index: str, target: Path) -> None:
        self.program, self.source, self.cache, self.index, self.target = program, source, cache, index, target
        self._installs = 0

    def words(self, *packages: str) -> list[str]:
        self._installs += 1
        self.last = self.target / f"installed-{self._installs}"
        options = ["--index-url", self.index, "--trusted-host", "127.0.0.1", "--target", str(self.last), "--no-compile"]
        return [sys.executable, "-m", "pip", "install", *options, *(packages or PACKAGES)]

    def run(self, command: list[str]) -> Done:
        path = os.pathsep.join([self.source, *self.program.path])
        own = {"PIP_CACHE_DIR": str(self.cache), "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        env = {**clean_environ(), **self.program.env(PYTHONPATH=path, PIP_ROOT_USER_ACTION="ignore"), **own}
        return subprocess.run(
            command, env=env, cwd=self.target, capture_output=True, text=True, timeout=120, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def guarded(self, *packages: str, options: tuple[str, ...] = ()) -> Done:
        return self.run([self.program.python, "-m", "ondol", "guard", *options, "--", *self.words(*packages)])

    def works(self) -> bool:
        script = "; ".join(f"import {name}; assert {name}.VALUE == {name!r}" for name in PACKAGES)
        env = {"PYTHONPATH": str(self.last)}
        return subprocess.run([sys.executable, "-B", "-c", script], env=env, check=False).returncode == 0


@pytest.fixture(scope="module")
def downloads(program: Program, index: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache after an install of all packages; for each test a copy of it."""
    place = tmp_path_factory.mktemp("pip")
    first = Pip(program, str(build("pip25")), place / "cache", index, place)
    done = first.run(first.words())
    assert done.returncode == 0, done.stderr
    return first.cache


@pytest.fixture
def pip(program: Program, index: str, downloads: Path, tmp_path: Path) -> Pip:
    shutil.copytree(downloads, tmp_path / "cache")
    return Pip(program, str(build("pip25")), tmp_path / "cache", index, tmp_path)


def body_of(pip: Pip, package: str) -> Path:
    """The file that holds a wheel that was downloaded."""
    name = f"{package}-1.0.dist-info/METADATA".encode()
    (found,) = [path for path in pip.cache.rglob("*.body") if name in path.read_bytes()]
    return found


@pytest.mark.parametrize("damage", ["cut off", "emptied", "changed"])
def test_damaged_download_is_healed(pip: Pip, damage: str) -> None:
    body = body_of(pip, "alpha")
    data = bytearray(body.read_bytes())
    if damage == "changed":
        data[300:310] = b"x" * 10
    body.write_bytes({"cut off": data[:700], "emptied": bytearray(), "changed": data}[damage])
    healthy = {path: path.stat().st_ino for path in (body_of(pip, "beta"), body_of(pip, "gamma"))}
    for _ in range(2):
        assert pip.run(pip.words()).returncode != 0

    done = pip.guarded()

    assert done.returncode == 0, done.stderr
    assert pip.works()
    assert "ondol: guard: 1 bad entry set aside, succeeded at attempt 2" in done.stderr
    aside = [path.name for path in pip.target.glob(".cache.ondol-aside-*/*/http-v2/**/*") if path.is_file()]
    assert sorted(aside) == [body.name[:-5], body.name]
    assert {path: path.stat().st_ino for path in healthy} == healthy


def test_wheel_that_was_built_here_and_is_damaged(pip: Pip, tmp_path: Path) -> None:
    """What pip built is found by RECORD; its neighbour stays."""
    folder = pip.cache / "wheels" / "ab" / "cd" / "ef"
    good, bad = wheelhouse.make_wheel(folder / "0", "delta"), wheelhouse.make_wheel(folder / "1", "epsilon")
    bad.write_bytes(bad.read_bytes()[:-30])

    found = list(Healer().examine(str(pip.cache), lambda _done, _total: None))

    assert [one.path for one in found] == [str(bad)]
    assert good.exists()


def test_download_whose_body_is_missing(pip: Pip) -> None:
    """Bad, unless it is so young that pip may be about to write it."""
    body = body_of(pip, "alpha")
    body.unlink()
    examine = lambda: [one.path for one in Healer().examine(str(pip.cache), lambda _done, _total: None)]  # noqa: E731
    assert examine() == []
    os.utime(str(body)[:-5], (0, time.time() - 3600))
    assert examine() == [str(body)[:-5]]


def test_redirection_is_not_taken_for_a_cut_off_download(pip: Pip) -> None:
    """pip keeps redirections with the length they announced and without their body."""
    headers = Path(str(body_of(pip, "alpha"))[:-5])
    data = headers.read_bytes()
    assert b"\xa6status\xcc\xc8" in data
    headers.write_bytes(data.replace(b"\xa6status\xcc\xc8", b"\xa6status\xcd\x01\x2d"))
    Path(f"{headers}.body").write_bytes(b"")
    assert list(Healer().examine(str(pip.cache), lambda _done, _total: None)) == []


def test_layout_of_before_23_3(program: Program, index: str, tmp_path: Path) -> None:
    """Headers and body in one file."""
    headers = b"cc=4,\x82\xa8response\x82\xa4body\xc5%b\xa6status\xcc\xc8\xa4vary\x80"
    wheel = wheelhouse.make_wheel(tmp_path, "alpha").read_bytes()
    folder = tmp_path / "cache" / "http" / "a" / "b"
    folder.mkdir(parents=True)
    for name, body in (("good", wheel), ("bad", wheel[:-40] + b"\0" * 40)):
        (folder / name).write_bytes(headers % (len(body).to_bytes(2, "big") + body))
    (folder / "torn").write_bytes((headers % (len(wheel).to_bytes(2, "big") + wheel))[:300])
    (folder / "other").write_bytes(b"something that another version wrote")
    found = Healer().examine(str(tmp_path / "cache"), lambda _done, _total: None)
    assert sorted(Path(one.path).name for one in found) == ["bad", "torn"]
