"""File systems without locks, or with broken ones: the next kind is taken; at the end of them the command runs unlocked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.test_strace import strace
from ondol.guard import lock_parts
from ondol.guard.lock_parts import FlockPart, LockPlace, candidates, identify, open_place
from people import ROOT, Program, needs_root
from uv_caches import Inside

pytestmark = pytest.mark.warm

__all__ = ["strace"]

#: What NFS, Lustre and FUSE have answered; 524 has no name outside the kernel.
ERRORS = ("524", "ENOSYS", "ENOLCK", "EBADF", "EOPNOTSUPP", "ESTALE", "EINVAL", "EIO")
LIMIT = 60


def without(number: str, cache: Path) -> list[str]:
    program = [sys.executable, str(ROOT / "tests" / "programs" / "no_locks.py"), number]
    return [*program, "guard", "--cache", str(cache), "--"]


def file_part(place: LockPlace, *, distant: bool) -> FlockPart:
    return FlockPart(place.path, place, distant=distant)


@pytest.mark.fault
@pytest.mark.parametrize("error", ERRORS)
def test_flock_that_fails_does_not_stop_the_command(strace: str, program: Program, tmp_path: Path, error: str) -> None:
    """C04, C20 to C22: the kernel itself refuses; a lease beside the cache is taken, and the status is the command's."""
    (tmp_path / "cache").mkdir()
    report = tmp_path / "report"
    inject = [strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e", f"inject=flock:error={error}"]
    guard = [program.python, "-m", "ondol", "guard", "--cache", str(tmp_path / "cache"), "--json", str(report), "--"]

    done = subprocess.run(
        [*inject, *guard, "sh", "-c", "exit 3"], env=program.env(), capture_output=True, text=True, timeout=LIMIT, check=False
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    lock = json.loads(report.read_text())["lock"]
    assert lock["standing"] == f"lease on {tmp_path}/.cache.ondol-lock"
    on_the_cache, on_a_file = lock["passed"]
    assert on_the_cache.startswith(f"flock on {tmp_path}/cache: ")
    assert on_a_file.startswith(f"flock on {tmp_path}/.cache.ondol-lock: ")


@pytest.mark.parametrize("error", ERRORS)
def test_no_two_at_once_without_locks(program: Program, tmp_path: Path, error: str) -> None:
    """With a lease they still take turns."""
    command = without(error, tmp_path / "cache")
    with Inside(command, env=program.env()) as first:
        first.entered()
        with Inside(command, env=program.env()) as second:
            assert "held by pid" in second.waits()
            first.leave()
            second.entered().leave()


@pytest.mark.fault
def test_killed_holder_of_a_lease_does_not_keep_it(program: Program, tmp_path: Path) -> None:
    command = without("524", tmp_path / "cache")
    with Inside(command, env=program.env()) as first:
        first.entered()
        with Inside(command, env=program.env()) as second:
            second.waits()
            first.process.kill()
            second.entered().leave()


@needs_root
@pytest.mark.root
def test_no_lock_at_all_does_not_stop_the_command(program: Program, public: Path) -> None:
    """Nothing can be locked and nothing can be created: said once, with the reasons, and not the command's failure."""
    cache = public / "nothing-works"
    cache.mkdir()
    arguments = ["524", "guard", "--cache", str(cache), "--"]
    script = """
def refuse_to_open(path, *how, **more):
    if str(path).endswith(".toml"):
        return opened(path, *how, **more)
    raise OSError(13, "Permission denied")
opened, os.mkdir, os.open = os.open, refuse_to_open, refuse_to_open
"""
    program_text = (
        (ROOT / "tests" / "programs" / "no_locks.py").read_text().replace("sys.exit(main", script + "\nsys.exit(main")
    )
    (public / "no_locks_at_all.py").write_text(program_text)

    done = program.run([program.python, str(public / "no_locks_at_all.py"), *arguments, "sh", "-c", "exit 7"], uid=1500)

    assert done.returncode == 7
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"ondol: warning: no lock can be had for {cache}: flock on {cache}: Permission denied; {cache.parent}/.{cache.name}.ondol-lock: "
    )
    assert line.endswith("; going on without")


def test_lock_service_that_never_answers_does_not_hang_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead lock daemon holds whoever asks, in the kernel, for ever; on a network file system somebody else asks."""
    monkeypatch.setattr(lock_parts, "ANSWER", 0.3)
    monkeypatch.setattr(lock_parts, "flock", lambda _fd, _shared: time.sleep(3600))
    part = file_part(LockPlace(str(tmp_path / "lock"), True), distant=True)
    with pytest.raises(OSError, match=r"no answer within 0\.3 seconds"):
        part.attempt(False)
    part.release()


def test_lock_that_a_child_took_for_us_is_ours(tmp_path: Path) -> None:
    """On network file systems a child asks, and ends: what it got must stay."""
    place = LockPlace(str(tmp_path / "lock"), True)
    one, other = file_part(place, distant=True), file_part(place, distant=True)
    assert one.attempt(False)
    assert not other.attempt(False)
    one.release()
    limit = time.monotonic() + LIMIT
    while not other.attempt(False):  # the child that asked last may still be ending, with all our files open
        assert time.monotonic() < limit
    other.release()


def test_lock_file_that_is_cleaned_away_is_locked_by_one(tmp_path: Path) -> None:
    place = LockPlace(str(tmp_path / "lock"), True)
    first, second = file_part(place, distant=False), file_part(place, distant=False)
    assert first.attempt(False)
    assert not second.attempt(False)
    os.unlink(place.path)  # `uv cache prune` removes what it does not know
    first.release()
    third = file_part(place, distant=False)
    assert third.attempt(False)
    assert not second.attempt(False)
    third.release()
    assert second.attempt(False)
    second.release()


def _planted(tmp_path: Path, what: str) -> LockPlace:
    place = LockPlace(str(tmp_path / "lock"), True)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    if what == "link":
        os.symlink(precious, place.path)
    elif what == "dangling link":
        os.symlink(tmp_path / "nowhere", place.path)
    elif what == "hard link":
        os.link(precious, place.path)
    elif what == "fifo":
        os.mkfifo(place.path)
    else:
        os.mkdir(place.path)
    return place


@pytest.mark.parametrize("what", ["link", "dangling link", "hard link", "fifo", "directory"])
def test_nothing_planted_under_the_locks_name_is_written_to(tmp_path: Path, what: str) -> None:
    with pytest.raises(OSError):
        open_place(_planted(tmp_path, what))
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_lock_file_is_never_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who comes in that moment would go on to a place of its own, and the two would not exclude each other.

    Seen on NFS: so it is made open, and not opened afterwards.
    """
    monkeypatch.setattr(os, "fchmod", lambda _fd, _mode: None)
    before = os.umask(0o077)
    try:
        os.close(open_place(LockPlace(str(tmp_path / "lock"), True)))
        assert os.umask(0o077) == 0o077, "the umask is the caller's again"
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o666


def test_lock_file_that_opens_a_moment_later_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS 3 makes a file and sets its mode in two steps, whatever we ask for."""
    place = LockPlace(str(tmp_path / "lock"), True)
    really, refusals = os.open, iter([True, True])

    def refused_twice(path: str, *arguments: int) -> int:
        if path == place.path and next(refusals, False):
            raise PermissionError(13, "Permission denied")
        return really(path, *arguments)

    (tmp_path / "lock").touch()
    monkeypatch.setattr(os, "open", refused_twice)
    os.close(open_place(place))


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("what", ["directory of another user", "link", "open to all"])
def test_private_directory_that_somebody_else_made_is_not_used(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "ondol-0"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if what == "link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        os.chown(folder, 1500 if what != "open to all" else 0, 0)
        folder.chmod(0o777 if what == "open to all" else 0o700)
    with pytest.raises(OSError):
        open_place(LockPlace(str(folder / "lock"), False))
    assert list(elsewhere.iterdir()) == []


def test_everybody_tries_the_same_places_in_the_same_order(tmp_path: Path) -> None:
    cache = tmp_path / "uv"
    cache.mkdir()
    found = candidates(str(cache))
    name = f"ondol-{cache.stat().st_dev:x}-{cache.stat().st_ino:x}.lock"
    assert [place.path for place in found] == [
        str(tmp_path / ".uv.ondol-lock"),
        str(cache / ".ondol-lock"),
        f"/tmp/ondol-{os.geteuid()}/{name}",
    ]


def test_mount_point_has_its_lock_inside(tmp_path: Path) -> None:
    """What lies beside a volume is another thing in every container."""
    found = candidates("/proc")
    assert found[0].path == "/proc/.ondol-lock"


def test_cache_that_cannot_be_made_does_not_stop_the_command(program: Program, tmp_path: Path) -> None:
    """Its path leads through a file: the tool will say so, better than we could."""
    (tmp_path / "file").write_text("")
    report = tmp_path / "report"
    cache = str(tmp_path / "file" / "cache")
    done = program.ondol("guard", "--cache", cache, "--json", str(report), "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    kind, _, path = json.loads(report.read_text())["lock"]["standing"].partition(" on ")
    assert kind == "flock"
    os.unlink(path)  # in a private directory of /tmp: nothing nearer could be made
    assert identify(str(tmp_path / "file" / "a" / "b")) == f"{identify(str(tmp_path / 'file'))}-a-b"
