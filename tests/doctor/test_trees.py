"""The checks that walk: each fault made for real, and a healthy directory about which they have nothing to say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doctor_runs import OTHER, UID, Doctor, acl_bytes, give, look, type_in
from handmade import key_of, write_triton_entry
from ondol.doctor import rights
from people import needs_root

pytestmark = pytest.mark.warm

ALL = ("owners", "modes", "setgid", "acls", "world-writable", "orphans", "entries")


@pytest.fixture
def cache(place: Path) -> Path:
    path = place / "cache"
    path.mkdir()
    path.chmod(0o755)
    for number in range(3):
        write_triton_entry(path, number)
    return path


def everything_below(path: Path) -> list[Path]:
    return [path, *sorted(path.rglob("*"))]


def test_healthy_directory_is_not_blamed(cache: Path) -> None:
    assert look(cache) == []


@needs_root
@pytest.mark.root
def test_healthy_directory_is_not_blamed_for_other_users(cache: Path, doctor: Doctor) -> None:
    """Ours alone; a group's, made with umask 002 and setgid: both are as they should be."""
    give(cache, UID)
    assert doctor(cache, uid=UID).json["findings"] == []
    for item in everything_below(cache):
        item.chmod(0o2775 if item.is_dir() else 0o664)
    for item in everything_below(cache / key_of(1)):
        os.chown(item, OTHER, UID)
    assert doctor(cache, uid=UID).json["findings"] == []
    assert doctor(cache).json["findings"] == []


# -- owners ------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    ("victim", "mode", "says"),
    [
        ("directory", 0o755, "cannot create files in"),
        ("directory", 0o733, "cannot look into"),
        ("file", 0o600, "cannot read"),
        ("lock", 0o644, "cannot open for writing"),
    ],
)
def test_foreign_entry_is_found(cache: Path, doctor: Doctor, victim: str, mode: int, says: str) -> None:
    give(cache, UID)
    folder = cache / key_of(1)
    path = {"directory": folder, "file": folder / "add.cubin", "lock": folder / "x.lock"}[victim]
    if victim == "lock":
        path.touch()
    os.chown(path, OTHER, OTHER)
    path.chmod(mode)

    said = doctor(cache, "--only", "owners", uid=UID)

    (finding,) = said.of("owners", "error")
    assert says in finding["what"]
    where = {"path": str(path), "owner": OTHER, "group": OTHER, "mode": f"{mode:04o}"}
    assert (said.status, finding["where"]) == (1, where)
    assert finding["fix"].startswith("sudo ")


@needs_root
@pytest.mark.root
def test_rights_by_access_control_list_are_found(cache: Path, doctor: Doctor) -> None:
    """Mode bits alone would say no; the kernel says yes, and so must we."""
    give(cache, UID)
    folder = cache / key_of(1)
    os.chown(folder, OTHER, OTHER)
    folder.chmod(0o755)
    assert doctor(cache, "--only", "owners", uid=UID).of("owners", "error")
    os.setxattr(folder, rights.ACCESS, acl_bytes([("user", UID, 7)], owner=7, group=5, mask=7, other=5))
    assert doctor(cache, "--only", "owners", uid=UID).of("owners", "error") == []


@needs_root
@pytest.mark.root
def test_sticky_directories_in_a_cache_are_found(cache: Path, doctor: Doctor) -> None:
    """A cache made "like /tmp": everything is writable, and still nobody can replace another user's file."""
    give(cache, OTHER)
    for item in everything_below(cache):
        item.chmod(0o1777 if item.is_dir() else 0o666)
    (finding,) = doctor(cache, "--only", "owners", uid=UID).json["findings"]
    assert (finding["severity"], finding["places"]) == ("warning", 15)
    type_in(finding["fix"])
    assert doctor(cache, "--only", "owners", uid=UID).json["findings"] == []


# -- modes -------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(("name", "mode"), [("", 0o000), ("", 0o600), ("", 0o555), ("add.cubin", 0o000)])
def test_owner_who_is_locked_out_is_found(cache: Path, doctor: Doctor, name: str, mode: int) -> None:
    give(cache, UID)
    path = cache / key_of(1) / name
    path.chmod(mode)

    said = doctor(cache, "--only", "modes", uid=UID)

    (finding,) = said.of("modes", "error")
    assert (finding["where"]["path"], finding["safe"]) == (str(path), True)
    subprocess.run(["bash", "-c", finding["fix"]], user=UID, group=UID, check=False, capture_output=True)
    assert doctor(cache, uid=UID).json["findings"] == []


@needs_root
@pytest.mark.root
def test_group_that_is_locked_out_of_its_own_cache_is_found(cache: Path, doctor: Doctor) -> None:
    """A job under umask 077 in a cache of a group."""
    give(cache, UID)
    cache.chmod(0o2770)
    for item in everything_below(cache)[1:]:
        item.chmod(0o2700 if item.is_dir() else 0o600)

    said = doctor(cache, "--only", "modes", uid=UID)

    directories, files = said.of("modes", "warning")
    assert (directories["places"], directories["safe"]) == (3, True)
    assert f"3 directories closed to the group {UID}" in directories["what"]
    assert files["places"] == 15
    for finding in (directories, files):
        subprocess.run(["bash", "-c", finding["fix"]], user=UID, group=UID, check=True)
    assert doctor(cache, "--only", "modes", uid=UID).json["findings"] == []
    (cache / key_of(1) / "add.json").chmod(0o644)
    (finding,) = doctor(cache, "--only", "modes", uid=UID).json["findings"]
    assert (finding["severity"], "not writable" in finding["what"]) == ("note", True), "most tools replace it instead"
    type_in(finding["fix"])
    assert doctor(cache, "--only", "modes", uid=UID).json["findings"] == []


@needs_root
@pytest.mark.root
def test_private_file_in_a_cache_of_all_is_found(cache: Path, doctor: Doctor) -> None:
    """CuPy makes files of mode 0600: in a cache that others use, they are hits that cannot be opened."""
    give(cache, UID)
    for item in everything_below(cache):
        item.chmod(0o777 if item.is_dir() else 0o666)
    os.chown(cache / key_of(0), OTHER, OTHER)
    (cache / key_of(1) / "add.cubin").chmod(0o600)
    (finding,) = doctor(cache, "--only", "modes", uid=UID).json["findings"]
    assert (finding["severity"], finding["places"], finding["safe"]) == ("warning", 1, False)
    assert finding["where"]["path"].endswith("add.cubin")
    type_in(finding["fix"])
    assert doctor(cache, "--only", "modes", uid=UID).json["findings"] == []


# -- setgid ------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
def test_directories_that_do_not_hand_the_group_on_are_found(cache: Path, doctor: Doctor) -> None:
    give(cache, UID)
    for item in everything_below(cache):
        item.chmod(0o775 if item.is_dir() else 0o664)
    os.chown(cache / key_of(2), OTHER, UID)
    os.chown(cache / key_of(1) / "add.json", UID, OTHER)

    said = doctor(cache, "--only", "setgid", uid=UID)

    ours, theirs, strays = said.of("setgid", "warning")
    assert (ours["places"], ours["safe"], theirs["places"], theirs["safe"]) == (3, True, 1, False)
    assert (strays["places"], strays["where"]["path"]) == (1, str(cache / key_of(1) / "add.json"))
    for finding in (ours, theirs, strays):
        type_in(finding["fix"])
    assert doctor(cache, "--only", "setgid", uid=UID).json["findings"] == []


# -- access control lists ----------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
def test_mask_that_takes_rights_back_is_found(cache: Path) -> None:
    """A tool that makes directories of mode 0755 below a default list: the list is there, and worth nothing."""
    default = acl_bytes([("user", UID, 7)], owner=7, group=7, mask=7, other=5)
    os.setxattr(cache, rights.DEFAULT, default)
    (cache / "new").mkdir(mode=0o755)

    findings = look(cache, "acls")

    masked, without = findings
    assert masked.where.path == str(cache / "new")
    assert f"user {UID} is granted rwx and has r-x" in masked.what
    assert "setfacl" in masked.fix
    assert (without.places, "default access control list" in without.what) == (3, True)


@needs_root
@pytest.mark.root
def test_list_that_works_is_not_blamed(cache: Path, doctor: Doctor) -> None:
    """With a list, the group's place in the mode holds the mask: that is no cache which a group shares."""
    default = acl_bytes([("user", UID, 7)], owner=7, group=5, mask=7, other=5)
    for item in everything_below(cache):
        if item.is_dir():
            os.setxattr(item, rights.DEFAULT, default)
            os.setxattr(item, rights.ACCESS, default)
    assert f"{cache.stat().st_mode:o}"[-3:] == "775"
    assert look(cache) == []
    assert doctor(cache, uid=UID).json["findings"] == []


@needs_root
@pytest.mark.root
@pytest.mark.skipif(not shutil.which("setfacl"), reason="needs setfacl, of the package acl")
def test_printed_commands_mend_lists(cache: Path, doctor: Doctor) -> None:
    subprocess.run(["setfacl", "-m", f"u:{UID}:rwx", "-m", f"d:u:{UID}:rwx", cache], check=True)
    (cache / "new").mkdir(mode=0o755)
    for finding in look(cache, "acls"):
        type_in(finding.fix)
    assert look(cache, "acls") == []
    assert os.access(cache / "new", os.W_OK)
    assert not [one for one in doctor(cache, uid=UID).of("owners") if str(cache / "new") in one["where"]["path"]]


# -- world-writable ----------------------------------------------------------------------------------------------


def test_cache_in_which_anybody_can_plant_code_is_found(cache: Path, place: Path) -> None:
    (cache / key_of(1)).chmod(0o777)
    (finding,) = look(cache, "world-writable")
    assert (finding.severity, finding.where.path) == ("warning", str(cache / key_of(1)))
    type_in(finding.fix)
    assert look(cache, "world-writable") == []
    place.chmod(0o777)
    (finding,) = look(cache, "world-writable")
    assert (finding.where.path, finding.where.mode) == (str(place), "0777")
    type_in(finding.fix)
    assert look(cache, "world-writable") == []


@needs_root
@pytest.mark.root
def test_closing_a_cache_leaves_it_open_to_the_user_who_asked(cache: Path, doctor: Doctor) -> None:
    """Root's directory of mode 0777, used by a job: the cure must leave the job its rights."""
    cache.chmod(0o777)
    for number in range(3):
        give(cache / key_of(number), UID)
    (finding,) = doctor(cache, "--only", "world-writable", uid=UID).json["findings"]
    type_in(finding["fix"])
    assert doctor(cache, uid=UID).json["errors"] == 0
    assert not doctor(cache, uid=UID).of("world-writable")


# -- orphans -----------------------------------------------------------------------------------------------------


def extension(cache: Path, define: str = "-DTORCH_EXTENSION_NAME=fused") -> Path:
    """A build directory as torch's cpp_extension leaves it."""
    folder = cache / "py311_cpu" / "fused"
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text(f"ninja_required_version = 1.3\ncflags = {define}\n")
    return folder


def builder(folder: Path) -> subprocess.Popen[bytes]:
    """A process that holds torch's lock, as torch does: made exclusively, open as long as it builds."""
    code = f"import os; os.open({str(folder / 'lock')!r}, os.O_CREAT | os.O_EXCL); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream
        stream.close()


def test_lock_of_a_killed_build_is_found_and_a_live_one_is_not_blamed(cache: Path) -> None:
    folder = extension(cache)
    process = builder(folder)
    try:
        assert look(cache, "orphans") == []
    finally:
        end(process)
    (finding,) = look(cache, "orphans")
    assert (finding.severity, finding.where.path) == ("error", str(folder / "lock"))
    type_in(finding.fix)
    assert look(cache, "orphans") == []


def test_lock_that_is_no_baton_is_not_blamed(cache: Path) -> None:
    """tvm-ffi keeps a file of the same name beside its build file, and flocks it: left over, it does no harm."""
    (extension(cache, define="-DTVM_FFI") / "lock").touch()
    assert look(cache, "orphans") == []


@needs_root
@pytest.mark.root
def test_lock_of_another_user_is_not_blamed_before_its_time(cache: Path, doctor: Doctor) -> None:
    """We cannot see what other users' processes hold; a build that started just now may well be alive."""
    folder = extension(cache)
    lock = folder / "lock"
    lock.touch()
    give(cache, UID)
    os.chown(lock, OTHER, OTHER)
    assert doctor(cache, "--only", "orphans", uid=UID).json["findings"] == []
    long_ago = time.time() - 2 * 86400
    os.utime(lock, (long_ago, long_ago))
    (finding,) = doctor(cache, "--only", "orphans", uid=UID).json["findings"]
    assert (finding["safe"], finding["fix"]) == (False, f"sudo rm {lock}")
