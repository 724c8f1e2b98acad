"""The owner of a package cache leads root's `ondol guard` out of it, by links in place of its directories."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.guard import set_aside
from people import Program, needs_root

pytestmark = pytest.mark.warm

OWNER = 1001
ROUNDS = 12
#: Swaps a directory and a link for each other for as long as it may. No sleep: as often as the machine can.
SWAPPING = """
import os, sys
here, link, aside = sys.argv[1:]
print("ready", flush=True)
while True:
    os.rename(here, aside); os.rename(link, here)
    os.rename(here, link); os.rename(aside, here)
"""


class Cache:
    """A uv cache of OWNER's with one bad archive, and a directory of root's that has the same names in it."""

    def __init__(self, base: Path) -> None:
        self.victim = base / "victim"
        (self.victim / "bad" / "precious.dist-info").mkdir(parents=True)
        self.victim.chmod(0o755)
        self.path = base / "home" / "cache"
        (self.path / "archive-v0" / "bad" / "bad.dist-info").mkdir(parents=True)
        wheels = self.path / "wheels-v7" / "pypi" / "bad"
        wheels.mkdir(parents=True)
        (wheels / "bad-1.0").symlink_to("../../../archive-v0/bad")
        for folder, names, plain in os.walk(base / "home"):
            for name in [".", *names, *plain]:
                os.lchown(os.path.join(folder, name), OWNER, OWNER)

    def unharmed(self) -> bool:
        return (self.victim / "bad" / "precious.dist-info").is_dir() and os.listdir(self.victim) == ["bad"]


@pytest.fixture
def cache(public: Path, tmp_path: Path) -> Iterator[Cache]:
    base = public / tmp_path.name
    yield Cache(base)
    shutil.rmtree(base)


def guard(program: Program, cache: Cache) -> subprocess.CompletedProcess[str]:
    return program.ondol("guard", "--verify", "--cache", str(cache.path), "--", "sh", "-c", "exit 0")


@needs_root
def test_healing_still_works_for_roots_guard(program: Program, cache: Cache) -> None:
    done = guard(program, cache)
    assert done.returncode == 0
    assert "set aside" in done.stderr
    assert os.listdir(cache.path / "archive-v0") == []
    assert cache.unharmed()


@needs_root
def test_bucket_that_is_a_link_harms_nothing_elsewhere(program: Program, cache: Cache) -> None:
    shutil.rmtree(cache.path / "archive-v0")
    (cache.path / "archive-v0").symlink_to(cache.victim)
    done = guard(program, cache)
    assert done.returncode == 0
    assert cache.unharmed(), done.stderr


@needs_root
@pytest.mark.parametrize("level", ["archive-v0", "."])
def test_directory_swapped_for_a_link_while_root_heals_harms_nothing(
    program: Program, cache: Cache, level: str
) -> None:
    where = cache.path / level if level != "." else cache.path
    link = cache.path.parent / "link"
    link.symlink_to(cache.victim if level != "." else cache.victim.parent / "copy")
    (cache.victim.parent / "copy").mkdir()
    (cache.victim.parent / "copy" / "archive-v0").symlink_to(cache.victim)
    swapping = subprocess.Popen(
        [sys.executable, "-c", SWAPPING, str(where), str(link), str(cache.path.parent / "aside")],
        stdout=subprocess.PIPE,
        user=OWNER,
        group=OWNER,
        extra_groups=[],
    )
    try:
        assert swapping.stdout is not None
        assert swapping.stdout.readline() == b"ready\n"
        for number in range(ROUNDS):
            assert guard(program, cache).returncode == 0
            assert cache.unharmed(), f"after {number + 1} rounds"
    finally:
        swapping.kill()
        swapping.communicate()


@needs_root
def test_folder_swapped_for_a_link_removes_nothing_elsewhere(cache: Cache) -> None:
    """The oldest in it are removed: a link must not let root remove what is elsewhere."""
    place = set_aside.SetAside(str(cache.path), time.time())
    bad = cache.path / "archive-v0" / "bad"
    assert place.take(str(bad), set_aside.identity_of(str(bad)))
    base = cache.path.parent / f".cache.ondol-aside-{os.geteuid()}"
    base.rename(base.with_name("taken"))
    base.symlink_to(cache.victim)
    place.explain("a note")
    place.clean()
    assert cache.unharmed()
