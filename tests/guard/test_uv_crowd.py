"""Many installs at once on one cache, guarded and not, damaged and whole, some of them killed: all that live end installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import wheelhouse
from people import Program, needs_root
from uv_caches import PACKAGES, Uv, warm

pytestmark = [pytest.mark.real, pytest.mark.warm]
CROWD = 8


class Install:
    """One that runs beside others."""

    def __init__(self, uv: Uv, command: list[str]) -> None:
        self.target = uv.last
        self.process = subprocess.Popen(
            command, env=uv.env(), cwd=uv.target, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def end(self) -> tuple[int, str]:
        text, _ = self.process.communicate(timeout=240)
        return self.process.returncode, text


def works(target: Path, *packages: str) -> bool:
    script = "; ".join(f"import {name}; assert {name}.VALUE == {name!r}" for name in packages)
    done = subprocess.run([sys.executable, "-B", "-c", script], env={"PYTHONPATH": str(target)}, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("options", [(), ("--shared",)], ids=["one at a time", "shared"])
@pytest.mark.parametrize("state", ["cold", "damaged"])
def test_eight_guarded_installs_at_once(uv: Uv, options: tuple[str, ...], state: str) -> None:
    """C05: the legs of a matrix, on one node, as one user. Whole packages for all of them, one healing in all."""
    if state == "cold":
        shutil.rmtree(uv.cache)
    else:
        (uv.archive("alpha") / "alpha-1.0.dist-info" / "METADATA").unlink()
        shutil.rmtree(uv.archive("beta") / "beta-1.0.dist-info")

    crowd = [Install(uv, [*uv.guard(*options), *uv.words()]) for _ in range(CROWD)]
    ends = [one.end() for one in crowd]

    assert [status for status, _ in ends] == [0] * CROWD, ends
    assert all(works(one.target, *PACKAGES) for one in crowd)
    assert len([path for path in uv.set_aside() if path.startswith("archive")]) == (2 if state == "damaged" else 0)


def test_healing_breaks_no_neighbour(uv: Uv) -> None:
    """Plain uv processes, outside of any guard, install what is healthy while the cache is healed again and again."""
    stop = threading.Event()
    failures: list[str] = []

    def neighbour(number: int) -> None:
        own = Uv(uv.program, uv.uv, uv.cache, uv.index, uv.target / f"neighbour-{number}")
        own.target.mkdir()
        while not stop.is_set():
            done = own.naked("beta", "gamma")
            if done.returncode or not own.works("beta", "gamma"):
                failures.append(done.stderr)

    healthy = {**uv.entry("beta"), **uv.entry("gamma")}
    threads = [threading.Thread(target=neighbour, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            warm(uv)
            (uv.archive("alpha") / "alpha-1.0.dist-info" / "METADATA").unlink()
            done = uv.guarded()
            assert done.returncode == 0, done.stderr
            assert uv.works()
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert failures == []
    assert {**uv.entry("beta"), **uv.entry("gamma")} == healthy


@pytest.mark.fault
def test_kill_in_the_middle_does_not_break_the_next_install(
    program: Program, uv_program: Callable[[str], Path], tmp_path: Path
) -> None:
    """SIGKILL to guard and uv while half a wheel has arrived, several times over; then one that is left alone."""
    wheelhouse.make_index(tmp_path / "index", PACKAGES)
    with wheelhouse.stalling(tmp_path / "index") as (index, half_sent, go_on):
        uv = Uv(program, uv_program("uv"), tmp_path / "cache", index, tmp_path)
        for _ in range(3):
            half_sent.clear()
            process = subprocess.Popen(
                [*uv.guard(), *uv.words()], env=uv.env(), cwd=uv.target, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert half_sent.wait(60)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
        go_on.set()

        done = uv.guarded()

        assert done.returncode == 0, done.stderr
        assert uv.works()


@needs_root
@pytest.mark.root
class TestAnotherUser:
    """`sudo uv …`, once, in a cache that is ours; the entries are root's and closed."""

    UID = 1500

    @pytest.fixture
    def theirs(self, program: Program, uv_program: Callable[[str], Path], index: str, public: Path) -> Uv:
        home = public / f"home-{os.urandom(4).hex()}"
        home.mkdir()
        os.chown(home, self.UID, self.UID)
        uv = Uv(program, uv_program("uv"), home / "cache", index, home)
        done = uv.naked(uid=self.UID)
        assert done.returncode == 0, done.stderr
        return uv

    @pytest.mark.parametrize("closed", ["archive", "metadata", "pointers"])
    def test_entry_of_another_user_is_healed(self, theirs: Uv, closed: str) -> None:
        archive, folder = theirs.archive("alpha"), theirs.link("alpha").parent
        path = {
            "archive": archive,
            "metadata": archive / "alpha-1.0.dist-info" / "METADATA",
            "pointers": folder,
        }[closed]
        os.chown(path, 0, 0)
        path.chmod(0o700 if path.is_dir() else 0o600)
        healthy = {**theirs.entry("beta"), **theirs.entry("gamma")}
        assert theirs.naked(uid=self.UID).returncode != 0

        done = theirs.guarded(uid=self.UID)

        assert done.returncode == 0, done.stderr
        assert theirs.works()
        assert {**theirs.entry("beta"), **theirs.entry("gamma")} == healthy

    def test_marker_of_another_user_is_set_aside_when_asked_for(self, theirs: Uv) -> None:
        """uv cannot even start; that is the place's fault and not healed by itself, but --verify finds what it is."""
        (marker,) = theirs.cache.glob("sdists-v*/.git")
        os.chown(marker, 0, 0)
        assert theirs.naked(uid=self.UID).returncode != 0

        done = theirs.guarded(options=("--cache", str(theirs.cache), "--verify"), uid=self.UID)

        assert done.returncode == 0, done.stderr
        assert theirs.works()
        assert theirs.set_aside() == [str(marker.relative_to(theirs.cache))]

    def test_bad_entry_that_cannot_be_moved_is_named(self, theirs: Uv) -> None:
        """Nothing we may do about it: said, with the reason, and the failure is the command's own."""
        (theirs.archive("alpha") / "alpha-1.0.dist-info" / "METADATA").unlink()
        for path in [theirs.cache, *theirs.cache.rglob("*")]:
            os.chown(path, 0, 0, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o666)
        theirs.cache.chmod(0o1777)
        for path in theirs.cache.iterdir():
            path.chmod(
                0o777 if path.is_dir() and not path.name.startswith(("archive", "wheels")) else path.stat().st_mode
            )

        done = theirs.guarded("alpha", uid=self.UID)

        assert done.returncode == 2, done.stderr
        assert "not set aside: archive-v0/" in done.stderr
        assert "Permission denied" in done.stderr
        assert theirs.set_aside() == []
