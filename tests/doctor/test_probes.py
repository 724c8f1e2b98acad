"""The checks that try things out: on mounts that refuse them, and under a kernel that was made to lie."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor_runs import OTHER, UID, Doctor, Said, look
from handmade import write_triton_entry
from ondol.doctor.checks import tried_out
from ondol.host import filesystem
from people import ROOT, needs_root

pytestmark = pytest.mark.warm

needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace to make system calls fail")
Mounted = Callable[[str], Path]


def under(path: Path, injection: str, *arguments: str) -> Said:
    """`ondol doctor PATH` while the kernel answers one system call differently."""
    call = injection.split(":")[0]
    trace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={injection}"]
    command = [*trace, sys.executable, "-m", "ondol", "doctor", str(path), "--json", *arguments]
    packages = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
    return Said(subprocess.run(command, capture_output=True, text=True, env=env, timeout=120))


# -- mount -------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
def test_mount_without_execution_is_found(mounted: Mounted) -> None:
    path = mounted("noexec,size=4g")
    (finding,) = look(path, "mount")
    assert finding.severity == "error"
    assert "the kernel refuses to load a library (noexec?)" in finding.what
    subprocess.run(finding.fix, shell=True, check=True)
    assert look(path, "mount") == []
    assert list(path.iterdir()) == [], "the probe is gone"


@needs_root
@pytest.mark.root
def test_read_only_mount_is_found_and_not_blamed_on_owners(mounted: Mounted) -> None:
    """Nobody may write there; that is no fault of the files' owners or modes."""
    path = mounted("size=4g")
    os.chown(write_triton_entry(path, 1), UID, UID)
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
    errors = [finding for finding in look(path) if finding.severity == "error"]
    assert [(finding.check, finding.what) for finding in errors] == [("mount", f"{path} is on a read-only file system")]
    subprocess.run(errors[0].fix, shell=True, check=True)
    assert look(path, "mount") == []


# -- space -------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "severity", "says"),
    [
        ("size=50m", "error", "50.0 MiB are free"),
        ("size=1g", "warning", "1.0 GiB are free"),
        ("size=4g,nr_inodes=100", "error", "inodes are free"),
        ("size=4g,nr_inodes=10000", "warning", "inodes are free"),
    ],
)
def test_full_file_system_is_found(mounted: Mounted, options: str, severity: str, says: str) -> None:
    (finding,) = look(mounted(options), "space")
    assert (finding.severity, says in finding.what) == (severity, True), finding


@needs_root
@pytest.mark.root
def test_roomy_file_system_is_not_blamed(mounted: Mounted) -> None:
    path = mounted("size=4g")
    assert look(path, "space") == []
    assert list(path.iterdir()) == [], "what was reserved is given back"


@needs_strace
@pytest.mark.fault
def test_exhausted_quota_is_found(tmp_path: Path) -> None:
    """statvfs shows the free space of all; only trying shows the quota."""
    said = under(tmp_path, "fallocate:error=EDQUOT", "--only", "space")
    (finding,) = said.json["findings"]
    assert (said.status, finding["severity"]) == (1, "error")
    assert "EDQUOT (Disk quota exceeded)" in finding["what"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("left", "severity"), [(0, "error"), (99, "error"), (100, "warning"), (199, "warning"), (200, "")]
)
def test_less_space_is_more_severe(left: int, severity: str) -> None:
    assert tried_out.severity(left, 100, 200) == severity


# -- locking -----------------------------------------------------------------------------------------------------


@needs_strace
@pytest.mark.fault
@pytest.mark.parametrize(
    ("injection", "says"),
    [
        ("flock:error=524", "flock locks do not work in {}: locking fails with 524 ENOTSUPP"),
        ("flock:error=ENOLCK", "ENOLCK"),
        ("flock:error=ENOSYS", "ENOSYS"),
        ("flock:error=EBADF", "EBADF"),
        ("flock:retval=0", "a second process gets the lock while the first one holds it"),
        ("flock:error=ESTALE", "ESTALE"),
    ],
)
def test_broken_locks_are_found(tmp_path: Path, injection: str, says: str) -> None:
    said = under(tmp_path, injection, "--only", "locking")
    (finding,) = said.json["findings"]
    assert (said.status, finding["severity"]) == (1, "error")
    assert says.format(tmp_path) in finding["what"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "says"),
    [(errno.ENOLCK, "locking fails with ENOLCK"), (0, "a second process gets the lock while the first one holds it")],
)
def test_broken_fcntl_locks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, says: str) -> None:
    """Not with strace: Python itself needs this system call to start."""

    def lockf(_fd: int, _how: int) -> None:
        if error:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    (finding,) = look(tmp_path, "locking")
    assert f"fcntl locks do not work in {tmp_path}: {says}" in finding.what


def test_lock_that_blocks_for_ever_does_not_hang_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on NFS: flock does not return, although it was told not to wait."""
    monkeypatch.setattr(fcntl, "flock", lambda _fd, _how: signal.pause())
    (finding,) = look(tmp_path, "locking", patience=1.0)
    assert (finding.severity, "did not come back" in finding.what) == ("error", True)


def test_working_locks_are_not_blamed(tmp_path: Path) -> None:
    assert look(tmp_path, "locking") == []


# -- operations --------------------------------------------------------------------------------------------------


@needs_strace
@pytest.mark.fault
@pytest.mark.parametrize(
    ("injection", "says", "severity"),
    [
        ("link,linkat:error=EPERM", "making a hard link does not work in {}: EPERM", "warning"),
        ("fsync:error=EIO", "syncing a file (fsync) does not work in {}: EIO", "error"),
        ("rename,renameat,renameat2:error=EBUSY", "renaming a file over another does not work in {}: EBUSY", "error"),
        ("rename,renameat,renameat2:retval=0", "the old file is still there afterwards", "error"),
        ("link,linkat:retval=0", "the link count stays at one", "warning"),
        ("rmdir,unlinkat:error=ENOTEMPTY:when=1", "removing a file and its directory", "error"),
    ],
)
def test_broken_operations_are_found(tmp_path: Path, injection: str, says: str, severity: str) -> None:
    said = under(tmp_path, injection, "--only", "operations")
    assert [
        finding
        for finding in said.json["findings"]
        if finding["severity"] == severity and says.format(tmp_path) in finding["what"]
    ], said.json["findings"]


@needs_strace
@pytest.mark.fault
def test_file_system_without_links_does_not_serve_as_a_store(store_path: Path) -> None:
    said = under(store_path, "link,linkat:error=EPERM", "--only", "operations,publishing")
    assert {finding["check"] for finding in said.json["findings"] if finding["severity"] == "error"} == {
        "operations",
        "publishing",
    }


def test_working_operations_are_not_blamed(tmp_path: Path) -> None:
    assert look(tmp_path, "operations") == []
    assert list(tmp_path.iterdir()) == [], "the probe is gone"


# -- clock -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "ahead"), [(100.0, 0.0), (105.0, 0.0), (110.0, 0.0), (70.0, -30.0), (140.0, 30.0)])
def test_the_skew_is_how_far_a_time_lies_outside_ours(theirs: float, ahead: float) -> None:
    assert tried_out.skew(100.0, 110.0, theirs) == ahead


@pytest.mark.parametrize(("shift", "says"), [(3600.0, "60.0 min behind"), (-90.0, "90.0 s ahead of"), (0.0, "")])
def test_clock_of_the_server_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float, says: str) -> None:
    """Our clock is moved instead of the server's; the file's time is the kernel's own."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    findings = look(tmp_path, "clock")
    assert [says in finding.what for finding in findings] == ([True] if says else [])


# -- file system -------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
def test_cache_in_memory_is_named_as_such(mounted: Mounted) -> None:
    (finding,) = look(mounted("size=4g"), "file-system")
    assert (finding.severity, "tmpfs" in finding.what) == ("note", True)


def test_cache_on_local_disk_is_not_blamed(tmp_path: Path) -> None:
    if filesystem.mount_of(os.path.realpath(tmp_path), filesystem.mounts()).kind in ("tmpfs", "overlay"):
        pytest.skip("temporary files are not on a disk here")
    assert look(tmp_path, "file-system") == []


# -- reach -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [(), ("owners",)])
def test_directory_that_is_not_there_is_an_error(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """Also if only one check was asked for, which has nothing to look at."""
    (finding,) = look(tmp_path / "typing" / "error", *asked)
    assert (finding.check, finding.severity) == ("reach", "error")
    assert finding.fix == f"mkdir -p {tmp_path / 'typing' / 'error'}"


def test_file_is_not_taken_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("I am a file")
    (finding,) = look(tmp_path / "cache")
    assert (finding.check, "is not a directory" in finding.what) == ("reach", True)
    (finding,) = look(tmp_path / "cache" / "below")
    assert (finding.check, finding.where.path) == ("reach", str(tmp_path / "cache"))


@needs_root
@pytest.mark.root
def test_closed_way_is_not_taken_for_a_missing_directory(place: Path, doctor: Doctor) -> None:
    (place / "private" / "cache").mkdir(parents=True)
    os.chown(place / "private", OTHER, OTHER)
    (place / "private").chmod(0o700)
    os.chown(place / "private" / "cache", UID, UID)
    (finding,) = doctor(place / "private" / "cache", uid=UID).json["findings"]
    assert finding["where"] == {"path": str(place / "private"), "owner": OTHER, "group": OTHER, "mode": "0700"}
    assert finding["fix"] == f"sudo chmod a+x {place / 'private'}"
    subprocess.run(finding["fix"].replace("sudo ", ""), shell=True, check=True)
    assert doctor(place / "private" / "cache", uid=UID).json["errors"] == 0


@needs_root
@pytest.mark.root
def test_cache_that_cannot_be_made_is_found(place: Path, doctor: Doctor) -> None:
    """TRITON_CACHE_DIR points below a directory in which the job may not write: its first compile fails."""
    env = {"TRITON_CACHE_DIR": str(place / "triton"), "HOME": str(place), "USER": "somebody"}
    said = doctor("--only", "reach", uid=UID, env=env)
    (finding,) = said.json["findings"]
    assert (said.status, finding["where"]["path"]) == (1, str(place))
    subprocess.run(finding["fix"].replace("sudo ", ""), shell=True, check=True)
    assert doctor("--only", "reach", uid=UID, env=env).json["findings"] == []


@needs_root
@pytest.mark.root
def test_dead_file_server_does_not_hang_the_doctor(place: Path, doctor: Doctor) -> None:
    from ondol_hang import hanging_mount

    healthy = place / "healthy"
    healthy.mkdir()
    (healthy / "cache").mkdir()
    dead = healthy / "dead"
    with hanging_mount(dead):
        said = doctor(dead, healthy, "--timeout", "2s")
    (finding,) = said.of("reach")
    assert (said.status, finding["severity"]) == (1, "error")
    assert "does not answer" in finding["what"]
    assert finding["fix"] == f"umount -l {dead}"
    others = [one for one in said.json["examined"] if one["path"] == str(healthy)]
    assert others[0]["entries"] == 2, "the directory beside it was looked at, and the dead one in it was not touched"
    (left_out,) = said.of("walk")
    assert left_out["where"]["path"] == str(dead)
